from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.experiment import run_folder
from turbo_lab.experiment.bench import BenchRun, Options, run_bench
from turbo_lab.experiment.bench_record import make_record
from turbo_lab.experiment.gates import Evidence
from turbo_lab.experiment.plan import BenchPlan
from turbo_lab.experiment.preflight import Dialect
from turbo_lab.experiment.server_facts import Server
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.records import store
from turbo_lab.records.schema import EngineFacts

TTFT_S, GAP_S = 0.05, 0.01


def speech(slower: float = 1.0, **more: Any) -> Script:
    """A mock that is ``slower`` times as slow."""
    words = Speech(ttft_s=TTFT_S * slower, gap_s=GAP_S * slower)
    return Script(replies=(Reply(speech=words),), **more)


def quick_plan(**more: Any) -> BenchPlan:
    """A small closed-loop plan."""
    base = {"model": "mock", "requests": 30, "concurrency": 10, "input_tokens": 16,
            "output_tokens": 4, "warmup": 2, "timeout_s": 20.0}  # fmt: skip
    return BenchPlan(**{**base, **more})


def quick_options(**more: Any) -> Options:
    """No calibration, few samples."""
    return Options(**{"calibrate": False, "sample_every_s": 0.2, **more})


@pytest.fixture(scope="session")
def bench_mock() -> Callable[..., BenchRun]:
    """Run a plan against a fresh mock: ``bench_mock(folder, script, **plan fields)``."""

    def run(folder: Path, script: Script | None = None, **more: Any) -> BenchRun:
        with MockServer(script or speech()) as server:
            return run_bench(
                server.base_url, plan=quick_plan(**more), out=folder, options=quick_options()
            )

    return run


def timeline(index: int, slower: float, plan: BenchPlan, rng: random.Random) -> Timeline:
    """A request of the closed loop as a calm machine would see it, with 1 % of jitter."""
    ttft, gap = TTFT_S * slower, GAP_S * slower
    life = ttft + plan.output_tokens * gap
    sent = 100.0 + (index // plan.concurrency) * life
    first = sent + ttft * rng.uniform(0.99, 1.01)
    chunks = [
        (first + i * gap * rng.uniform(0.99, 1.01), 1, "content") for i in range(plan.output_tokens)
    ]
    usage = {"prompt_tokens": plan.input_tokens, "completion_tokens": plan.output_tokens}
    return Timeline(
        sent_s=sent, connected_s=sent, status_code=200, chunks=sorted(chunks), saw_done=True,
        finish_reason="length", usage=usage, closed_s=sent + life * 1.02,
        request_id=f"r{index:05d}", text="a b c",
    )  # fmt: skip


def made_run(folder: Path, *, slower: float = 1.0, seed: int = 0, **more: Any) -> BenchRun:
    """A run folder as ``run_bench`` leaves it, with timelines of known speed: no clock involved."""
    plan, rng = quick_plan(**more), random.Random(seed)
    engine = EngineFacts(name="mock", version="1", model="mock", model_sha256=None, command=None,
                         effective_config={})  # fmt: skip
    server = Server(engine, started=f"start {folder.name}")
    dialect = Dialect("continuous", True, 1.0, 0.0, "exact")
    timelines = [timeline(i, slower, plan, rng) for i in range(plan.requests)]
    header = {"plan": plan.to_dict(), "server": {}, "prompts_digest": str(seed)}
    with run_folder.begin(folder, header) as journal:
        journal.append({"kind": "session", "started_at": "now", "clock_s": 0.0})
        for index, one in enumerate(timelines):
            journal.append(run_folder.request_row(index, one))
        journal.append({"kind": "end", "how": "finished"})
    evidence = Evidence(plan=plan, timelines=timelines)
    record = make_record(
        evidence, base_url="http://mock", server=server, dialect=dialect,
        options=quick_options(), saved=run_folder.load_run(folder),
    )  # fmt: skip
    store.write(record, folder / run_folder.RECORD_NAME)
    return BenchRun(record, folder, evidence)


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> dict[str, BenchRun]:
    """A, the same again, 20 % slower, slower with two settings changed, slower and unrecorded."""
    home = tmp_path_factory.mktemp("runs")
    fast, slow = {"speed": 1.0}, {"speed": 1.2}
    return {
        "a": made_run(home / "a", declared=fast, slo={"ttft": 0.5}),
        "again": made_run(home / "again", seed=1, declared=fast, slo={"ttft": 0.5}),
        "slow": made_run(home / "slow", slower=1.2, seed=2, declared=slow),
        "two": made_run(home / "two", slower=1.2, seed=3, declared={**slow, "log_level": "debug"}),
        "silent": made_run(home / "silent", slower=1.2, seed=4),
    }
