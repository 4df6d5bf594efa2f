"""The measurement kit on a real server: A/A shows no difference, a slower setting is worse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from turbo_lab.engines import local_model
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.pool import ServerPool, pool_session
from turbo_lab.engines.transformers_server import TransformersServer
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.experiment import settings
from turbo_lab.experiment.arms import load_arm, observed
from turbo_lab.experiment.bench import Options, run_bench
from turbo_lab.experiment.compare import compare
from turbo_lab.experiment.plan import BenchPlan
from turbo_lab.report.comparison_text import comparison_lines

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def model() -> str:
    pytest.importorskip("vllm", reason="needs the cpu environment")
    return local_model.resolve_model()


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPool]:
    with pool_session(tmp_path_factory.mktemp("pool")) as session:
        yield session


@pytest.fixture(scope="module")
def server(model: str, pool: ServerPool) -> VllmServer:
    return pool.acquire(VllmArgs.make(model=model, dtype="float32"))


def bench(server, folder: Path, name: str = "lab", **more):
    base = {"model": name, "requests": 20, "concurrency": 2, "input_tokens": 64,
            "output_tokens": 16, "primary_metric": "tpot"}  # fmt: skip
    plan = BenchPlan(**{**base, **more})
    return run_bench(server.base_url, plan=plan, out=folder, options=Options(calibrate=False))


def test_one_run_knows_its_server(server: VllmServer, tmp_path: Path) -> None:
    run = bench(server, tmp_path / "run")
    gates = {g.name: g for g in run.record.gates}
    print("\n".join(f"{g.name}: {g.passed} {g.detail}" for g in run.record.gates))
    for name in ("complete", "failures", "output length", "input length", "preemptions"):
        assert gates[name].passed is True, gates[name]
    assert "20 of 20 replies exact" in gates["output length"].detail
    found = settings.of_record(run.record)
    assert found["engine"] == "vllm" and found["engine_version"].startswith("0.32")
    assert found["flag.dtype"] == "float32" and found["flag.max_num_seqs"] == "16"
    assert not [name for name in found if name.endswith("port")]
    assert observed(run.record, "lengths")["input_tokens_mean"] == 64, "exact by its tokenizer"
    assert observed(run.record, "resources")["server_cores_mean"] > 0.3
    assert observed(run.record, "target")["server_start"].startswith("process")


def test_a_against_a_on_the_live_server(server: VllmServer, tmp_path: Path) -> None:
    """Two runs of the same on one start. Other work on the machine may disturb one: three tries."""
    for attempt in "123":
        for name in "ab":
            bench(server, tmp_path / f"{attempt}{name}")
        found = compare(
            load_arm(tmp_path / f"{attempt}a"), load_arm(tmp_path / f"{attempt}b"),
            declared=None, metric="tpot", folder=tmp_path / "noise",
        )  # fmt: skip
        print("\n".join(comparison_lines(found)))
        assert found.changed == ()
        if found.verdict == "no difference shown":
            return
    pytest.fail(f"{comparison_lines(found)}")


def test_a_smaller_batch_limit_is_named_and_worse(
    server: VllmServer, pool: ServerPool, model: str, tmp_path: Path
) -> None:
    small = pool.acquire(VllmArgs.make(model=model, dtype="float32", max_num_seqs=1))
    bench(server, tmp_path / "a", concurrency=8, requests=24)
    bench(small, tmp_path / "b", concurrency=8, requests=24)
    found = compare(
        load_arm(tmp_path / "a"), load_arm(tmp_path / "b"), declared="max_num_seqs",
        metric="ttft", folder=tmp_path / "noise",
    )  # fmt: skip
    print("\n".join(comparison_lines(found)))
    assert found.changed == ("max_num_seqs",)
    assert found.verdict == "worse" and found.attributable
    other = compare(
        load_arm(tmp_path / "a"), load_arm(tmp_path / "b"), declared="dtype", metric="ttft",
        folder=tmp_path / "noise",
    )  # fmt: skip
    assert "max_num_seqs" in other.changed and not other.attributable


def test_transformers_serve_is_measured_too(model: str, tmp_path: Path) -> None:
    with TransformersServer(model) as other:
        run = bench(other, tmp_path / "t", name=model, requests=6, output_tokens=8)
    gates = {g.name: g for g in run.record.gates}
    print("\n".join(f"{g.name}: {g.passed} {g.detail}" for g in run.record.gates))
    assert gates["failures"].passed is True and gates["complete"].passed is True
