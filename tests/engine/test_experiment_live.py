"""The measurement kit on a real server: A/A shows no difference, a slower setting is worse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
from turbo_lab.experiment.sweep import counterbalanced
from turbo_lab.report.comparison_text import comparison_lines

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.alone]


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


Sides = dict[str, tuple[VllmServer, dict]]


def in_turn(folder: Path, sides: Sides, *, rounds: int = 5) -> dict[str, Path]:
    """Runs of all sides in counterbalanced order, so that whatever drifts meets each alike."""
    for number, side in counterbalanced(list(sides), rounds=rounds):
        server, plan = sides[side]
        bench(server, folder / side / f"run-{number}", warmup=1, **plan)
    return {side: folder / side for side in sides}


def judged(a: Path, b: Path, *, noise: Path, **question):
    found = compare(load_arm(a), load_arm(b), folder=noise, **question)
    print("\n".join(comparison_lines(found)))
    return found


def test_a_against_a_on_the_live_server(server: VllmServer, tmp_path: Path) -> None:
    """Five runs a side on one start. A burst of other work may hit one side: a second try."""
    for attempt in "12":
        same = (server, {"requests": 10})
        made = in_turn(tmp_path / attempt, {"a": same, "b": same})
        found = judged(*made.values(), noise=tmp_path / "noise", declared=None, metric="tpot")
        assert found.changed == () and not found.attributable
        assert [(s.unit, len(s.values)) for s in found.samples] == [("repeats", 5)] * 2
        if found.verdict == "no difference shown":
            return
    pytest.fail(f"{comparison_lines(found)}")


@pytest.fixture
def limited(
    server: VllmServer, pool: ServerPool, model: str, tmp_path_factory: pytest.TempPathFactory,
    measured_once: Callable[[Callable[[], Any]], Any],
) -> dict[str, Path]:  # fmt: skip
    """Six users before a server of 16 sequences (a) and one of a single one (b); ten users there
    (c), which is two settings away from a.
    """
    small = pool.acquire(VllmArgs.make(model=model, dtype="float32", max_num_seqs=1))
    load = {"concurrency": 6, "requests": 12, "output_tokens": 8}
    sides = {"a": (server, load), "b": (small, load), "c": (small, {**load, "concurrency": 10})}

    def measure() -> dict[str, Path]:
        return in_turn(tmp_path_factory.mktemp("limited"), sides)

    return measured_once(measure)


def test_a_smaller_batch_limit_is_named_and_worse(limited: dict[str, Path], tmp_path: Path) -> None:
    question = {"metric": "ttft", "noise": tmp_path}
    found = judged(limited["a"], limited["b"], declared="max_num_seqs", **question)
    assert found.changed == ("max_num_seqs",)
    assert found.verdict == "worse" and found.attributable
    assert "B is worse because max_num_seqs changed from" in "\n".join(comparison_lines(found))
    other = judged(limited["a"], limited["b"], declared="dtype", **question)
    assert other.verdict == "worse" and not other.attributable
    assert "dtype does not differ, but max_num_seqs do" in "\n".join(comparison_lines(other))


def test_two_settings_changed_show_the_effect_and_no_cause(
    limited: dict[str, Path], tmp_path: Path
) -> None:
    found = judged(
        limited["a"], limited["c"], declared="max_num_seqs", metric="ttft", noise=tmp_path
    )
    assert set(found.changed) == {"max_num_seqs", "concurrency"}
    assert found.verdict == "worse" and not found.attributable
    text = "\n".join(comparison_lines(found))
    assert "because" not in text and "besides max_num_seqs also concurrency differ" in text


def test_log_level_and_precision_beside_the_declared_setting_are_named(
    limited: dict[str, Path], pool: ServerPool, model: str, tmp_path: Path
) -> None:
    """Only what changed is judged here: bfloat16 is slow on one processor and fast on the next."""
    args = VllmArgs.make(model=model, dtype="bfloat16", max_num_seqs=1,
                         env=(("VLLM_LOGGING_LEVEL", "DEBUG"),))  # fmt: skip
    load = {"concurrency": 6, "requests": 12, "output_tokens": 8}
    bench(pool.acquire(args), tmp_path / "b", warmup=1, **load)
    found = judged(limited["a"] / "run-0", tmp_path / "b", noise=tmp_path / "noise",
                   declared="max_num_seqs", metric="ttft")  # fmt: skip
    assert {"max_num_seqs", "dtype", "env.VLLM_LOGGING_LEVEL"} <= set(found.changed)
    rest = set(found.changed) - {"max_num_seqs", "dtype"}
    assert all("log" in name.lower() for name in rest), "nothing else differs"
    assert not found.attributable and "because" not in "\n".join(comparison_lines(found))


def test_transformers_serve_is_measured_too(model: str, tmp_path: Path) -> None:
    with TransformersServer(model) as other:
        run = bench(other, tmp_path / "t", name=model, requests=6, output_tokens=8)
    gates = {g.name: g for g in run.record.gates}
    print("\n".join(f"{g.name}: {g.passed} {g.detail}" for g in run.record.gates))
    assert gates["failures"].passed is True and gates["complete"].passed is True
