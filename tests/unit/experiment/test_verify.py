"""A record run again."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import EngineError, RecordError, UsageError
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.experiment.arms import load_arm
from turbo_lab.experiment.metric_names import metric_name
from turbo_lab.experiment.verify import check, interval, verify_record
from turbo_lab.records.digest import seal

from .conftest import made_run, quick_options


def waiting(ttft_s: float) -> Script:
    return Script(replies=(Reply(speech=Speech(ttft_s=ttft_s, gap_s=0.0)),))


@pytest.mark.alone
def test_the_same_is_inside_and_a_slower_one_outside(bench_mock, tmp_path):
    run = bench_mock(tmp_path / "run", waiting(0.3), requests=20)
    for attempt in range(3):  # Other work on the machine may disturb one.
        with MockServer(waiting(0.3)) as server:
            same = verify_record(
                run.record, base_url=server.base_url, metrics=["ttft"],
                out=tmp_path / f"same{attempt}", options=quick_options(),
            )  # fmt: skip
        if same.reproduced:
            break
    assert same.reproduced is True, same
    with MockServer(waiting(0.5)) as server:
        slow = verify_record(run.record, base_url=server.base_url, metrics=["ttft"],
                             out=tmp_path / "slow", options=quick_options())  # fmt: skip
    assert slow.reproduced is False and slow.checks[0].outcome == "outside"
    failed = [g for g in load_arm(tmp_path / "slow").gates() if g.passed is False]
    assert slow.warnings == tuple(f"{g.name}: {g.detail}" for g in failed)


def test_the_interval_holds_the_recorded_value_and_every_metric_is_checked(runs):
    record = runs["a"].record
    for name in ("ttft", "tpot", "e2e", "throughput"):
        low, high = interval(record, metric_name(name), folder=runs["a"].folder)
        value = next(m.value for m in record.measurements if m.name == metric_name(name).base)
        assert low < value < high
        assert check(record, runs["again"].record, metric_name(name)).outcome == "inside"
        assert check(record, runs["slow"].record, metric_name(name)).outcome == "outside"
    assert check(record, runs["again"].record, metric_name("goodput")).outcome in (
        "inside", "outside",
    )  # fmt: skip
    assert check(record, runs["slow"].record, metric_name("goodput")).outcome == "no data"
    assert check(record, runs["again"].record, metric_name("ttft"), blocked=True).outcome == (
        "cannot tell"
    )


def test_what_cannot_be_run_again_is_told(runs, tmp_path):
    bare = seal(runs["a"].record.model_copy(update={"observations": (), "study": "nb03"}))
    with pytest.raises(UsageError, match="turbo-lab run 03"):
        verify_record(bare)
    kept = tuple(o for o in runs["a"].record.observations if o.name == "plan")
    with pytest.raises(RecordError, match="give --url"):
        verify_record(seal(runs["a"].record.model_copy(update={"observations": kept})))
    with pytest.raises(EngineError, match="cannot connect"):
        verify_record(made_run(tmp_path / "x").record, base_url="http://127.0.0.1:9")


def test_a_wrong_metric_is_refused_before_anything_is_run(runs):
    with pytest.raises(UsageError, match="metric 'speed'"):
        verify_record(runs["a"].record, base_url="http://127.0.0.1:9", metrics=["speed"])
