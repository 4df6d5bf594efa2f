"""Workloads on a real server: lengths to the token, and what its prefix cache finds of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from turbo_lab.engines import local_model
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.pool import pool_session
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.experiment.arms import observed
from turbo_lab.experiment.bench import BenchRun, Options, run_bench
from turbo_lab.experiment.plan import BenchPlan
from turbo_lab.workload.shape import Workload

pytestmark = [pytest.mark.engine, pytest.mark.slow]  # lengths and counters, not times
BLOCK_TOKENS = 32


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    pytest.importorskip("vllm", reason="needs the cpu environment")
    args = VllmArgs.make(
        model=local_model.resolve_model(), dtype="float32", enable_prefix_caching=True,
        block_size=BLOCK_TOKENS,
    )  # fmt: skip
    with pool_session(tmp_path_factory.mktemp("pool")) as pool:
        yield pool.acquire(args)


def measure(server: VllmServer, folder: Path, workload: Workload, **more) -> BenchRun:
    plan = BenchPlan(model="lab", workload=workload, concurrency=1, output_tokens=16, warmup=1,
                     **more)  # fmt: skip
    options = Options(calibrate=False, sample_every_s=0.1)
    run = run_bench(server.base_url, plan=plan, out=folder, options=options)
    gates = {g.name: g for g in run.record.gates}
    print("\n".join(f"{g.name}: {g.passed} {g.detail}" for g in gates.values()))
    for name in ("complete", "failures", "output length", "input length", "prefix hits"):
        assert gates[name].passed is True, gates[name]
    return run


def test_each_turn_adds_what_was_asked_and_finds_the_turns_before(
    server: VllmServer, tmp_path: Path
) -> None:
    work = Workload(kind="multi-turn", turns=3)
    run = measure(server, tmp_path, work, requests=9, input_tokens=48)
    detail = next(g.detail for g in run.record.gates if g.name == "input length")
    told = re.fullmatch(r"asked 48 tokens that each turn adds, mean ([\d.]+) by the server", detail)
    # A reply is read back as text, and its tokens may join with their neighbours there: a token
    # more or less in a history of 64 or 128, so in the share too.
    assert told and abs(float(told[1]) - 48) <= 1, detail
    shared = observed(run.record, "prompts")["shared_share"]
    found = observed(run.record, "resources")["prefix_hit_rate"]
    print(f"repeated {shared:.1%}, found {found:.1%}")
    assert shared == pytest.approx((0 + 64 + 128) / (48 + 112 + 176), abs=0.02)
    assert 0.5 * shared < found <= shared + 0.15


def test_a_shared_prefix_is_found_but_for_its_first_use(server: VllmServer, tmp_path: Path) -> None:
    work = Workload(kind="shared-prefix", prefixes=2, prefix_tokens=192)
    run = measure(server, tmp_path, work, requests=10, input_tokens=256)
    shared = observed(run.record, "prompts")["shared_share"]
    found = observed(run.record, "resources")["prefix_hit_rate"]
    first, later = observed(run.record, "groups")["prefix use"]
    print(f"repeated {shared:.1%}, found {found:.1%}, TTFT {first['ttft_p50_s']:.3f} s first, "
          f"{later['ttft_p50_s']:.3f} s later")  # fmt: skip
    assert shared == pytest.approx(8 * 192 / 2560)
    assert 0.5 * shared < found <= shared + 0.15, "the chat template is shared too"
