"""Sweeps on mocks: order, restarts, resume, servers that do not start, studies."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest

from turbo_lab.core.config import Dials
from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.experiment import knees, study
from turbo_lab.experiment.launch import fresh_vllm, running
from turbo_lab.experiment.progress import Silent
from turbo_lab.experiment.sweep import Launched, SweepPlan, counterbalanced, run_sweep
from turbo_lab.records import store
from turbo_lab.report.sweep import knee_lines, load_points, render_sweep

from .conftest import quick_options, quick_plan, speech


@contextmanager
def mock(value):
    if value == "broken":
        raise EngineError("the server ended while starting")
    with MockServer(speech(float(value) if value in (1.0, 1.3) else 1.0)) as server:
        yield Launched(server.base_url, "mock")


def plan(**more) -> SweepPlan:
    base = {"key": "speed", "values": (1.0, 1.3), "restarts": 2, "metric": "ttft",
            "plan": quick_plan(requests=5, concurrency=5, warmup=0)}  # fmt: skip
    return SweepPlan(**{**base, **more})


class Impatient(Silent):
    """Interrupts at the third finished request, as a user would."""

    def __init__(self) -> None:
        self.seen = 0

    def step(self, *, failed: bool) -> None:
        self.seen += 1
        if self.seen == 3:
            raise KeyboardInterrupt


def never(value):
    raise AssertionError(f"{value} was measured already")


def test_a_run_that_was_interrupted_is_measured_anew_and_does_not_count(tmp_path):
    options, work = quick_options(), plan(restarts=1)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(work, launch=mock, out=tmp_path, store_floor=False,
                  options=replace(options, progress=Impatient()))  # fmt: skip
    result = run_sweep(work, launch=mock, out=tmp_path, options=options, store_floor=False)
    records = [r for arm in result.arms.values() for r in arm.records]
    assert len(records) == 2 and all(r.complete for r in records)
    run_sweep(work, launch=never, out=tmp_path, options=options, store_floor=False)


def test_counterbalanced_order_meets_all_values_alike():
    order = counterbalanced("ab", rounds=4)
    assert [v for _, v in order] == list("abba") + list("baab")
    three = counterbalanced("abc", rounds=6)
    for position in range(3):
        seen = [v for i, (_, v) in enumerate(three) if i % 3 == position]
        assert sorted(seen) == ["a", "a", "b", "b", "c", "c"]


def test_every_restart_is_a_fresh_server_and_goes_on_after_a_stop(tmp_path):
    starts = []

    @contextmanager
    def counted(value):
        starts.append(value)
        if len(starts) == 3:
            raise KeyboardInterrupt
        with mock(value) as server:
            yield server

    options = quick_options()
    with pytest.raises(KeyboardInterrupt):
        run_sweep(plan(), launch=counted, out=tmp_path, options=options, store_floor=False)
    result = run_sweep(plan(), launch=counted, out=tmp_path, options=options, store_floor=False)
    assert len(starts) == 5, "two measured, one stopped, two after it"
    assert {v: len(a.records) for v, a in result.arms.items()} == {"1.0": 2, "1.3": 2}
    (found,) = result.comparisons
    assert found.changed == ("speed",) and found.verdict == "cannot tell"
    assert "a verdict needs at least 5" in found.reasons[0]
    with pytest.raises(UsageError, match="another sweep"):
        run_sweep(plan(restarts=3), launch=mock, out=tmp_path, options=options)


def test_a_server_that_does_not_start_is_a_failure_with_its_reason(tmp_path):
    result = run_sweep(
        plan(values=(1.0, "broken"), restarts=1), launch=mock, out=tmp_path,
        options=quick_options(), store_floor=False,
    )  # fmt: skip
    assert list(result.arms) == ["1.0"] and result.comparisons == ()
    assert "ended while starting" in result.failures[0].reason
    assert "unmeasured at broken" in render_sweep(result)


def test_load_is_varied_on_a_running_server_and_has_a_curve(tmp_path):
    """Whole rounds of a slow server, so that each load has twice the power of the one before."""
    with MockServer(speech(3.0)) as server:
        result = run_sweep(
            plan(key="concurrency", values=(1, 2, 4), restarts=1, metric="e2e",
                 plan=quick_plan(requests=8, concurrency=8, warmup=0)),
            launch=running(server.base_url, model="mock"), out=tmp_path,
            options=quick_options(), store_floor=False,
        )  # fmt: skip
    points = load_points(result)
    assert [p.load for p in points] == [1, 2, 4]
    assert points[2].throughput_tok_s > 1.5 * points[0].throughput_tok_s
    page = render_sweep(result, question="Where?")
    assert page.count("<figure>") >= 2 and "memory knee: unknown" in page
    assert "latency knee: load 4" in page and "most throughput per second of latency" in page


def point(load, throughput, latency, **more) -> knees.LoadPoint:
    return knees.LoadPoint(load, throughput, latency, **more)


def test_knees():
    curve = [point(1, 10, 1.0), point(2, 20, 1.0), point(4, 39, 1.1), point(8, 60, 3.0),
             point(16, 62, 8.0)]  # fmt: skip
    assert knees.latency_knee(curve).load in (4, 8)
    assert knees.latency_knee(curve[:2]) is None
    flat = [point(x, x, 1.0) for x in (1, 2, 4)]
    assert knees.latency_knee(flat) is None
    straight = [point(x, x, float(x)) for x in (1, 2, 3, 4)]
    assert knees.latency_knee(straight) is None
    assert knees.load_knee(curve, closed_loop=False) == knees.latency_knee(curve)
    full = [point(1, 1, 1.0, kv_usage_max=0.4), point(2, 2, 1.0, kv_usage_max=0.99),
            point(3, 2, 2.0, kv_usage_max=0.7, preemptions=3.0)]  # fmt: skip
    assert knees.memory_knee(full).load == 2
    assert knees.memory_knee(full[:1]) is None
    assert knee_lines(full, closed_loop=True)[1] == "memory knee: load 2"


def test_studies_are_whole_and_make_a_record(tmp_path):
    for name in study.study_names():
        for effort in study.EFFORTS:
            work = study.load_study(name).sweep(effort)
            assert work.restarts >= 1 and work.metric
    chosen = study.load_study("aa")
    dials = Dials("cpu", "smoke", "test")
    small = plan(key="repeat", values=("a", "b"), restarts=1, study="aa")
    result = run_sweep(small, launch=mock, out=tmp_path, options=quick_options(),
                       store_floor=False)  # fmt: skip
    assert result.comparisons[0].changed == ()
    assert replace(small, follows=("x",)).digest() == small.digest(), "continued all the same"
    record = study.study_record(chosen, result, dials=dials, effort="smoke")
    path = store.write(record, tmp_path / "aa.json")
    again = store.load(path)
    assert again.study == "aa" and len(again.measurements) == 2
    assert again.measurements[0].name == "ttft_s.p50 at repeat=a"
    with pytest.raises(UsageError, match="Did you mean 'load'"):
        study.load_study("laod")
    with pytest.raises(UsageError, match="effort"):
        chosen.sweep("huge")


def test_wrong_sweeps_are_refused():
    with pytest.raises(UsageError, match="two different values"):
        plan(values=(1.0,))
    with pytest.raises(UsageError, match="two different values"):
        plan(values=(1.0, 1.0))
    with pytest.raises(UsageError, match="restarts"):
        plan(restarts=0)
    with pytest.raises(UsageError, match="Did you mean 'max_num_seqs'"):
        fresh_vllm(Dials("cpu", "smoke", "x"), key="max_num_seq")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"key": "concurrency", "values": (1, "x")}, "concurrency takes whole numbers, not 'x'"),
        ({"key": "concurrency", "values": (1, 1.5)}, "whole numbers, not 1.5"),
        ({"key": "concurrency", "values": (1, True)}, "whole numbers, not True"),
        ({"key": "rate", "values": (1.5, "fast")}, "rate takes numbers"),
        ({"key": "concurrency", "values": (1, 0)}, "at least 1"),
        ({"metric": "speed"}, "metric 'speed'"),
        ({"metric": "ttft.p0"}, "above 0, below 100"),
    ],
)
def test_values_that_no_run_can_have_are_refused_before_the_first(fields, words):
    with pytest.raises(UsageError, match=words):
        plan(**fields)


def test_a_damaged_record_is_a_failure_with_its_reason(tmp_path):
    work = plan(restarts=1)
    result = run_sweep(work, launch=mock, out=tmp_path, options=quick_options(), store_floor=False)
    assert result.failures == ()
    (path,) = (tmp_path / "speed-1.3").glob("*/record.json")
    path.write_text(path.read_text()[:200])
    again = run_sweep(work, launch=never, out=tmp_path, options=quick_options(), store_floor=False)
    (failure,) = again.failures
    assert failure.value == 1.3 and "not whole JSON" in failure.reason
    assert list(again.arms) == ["1.0"]
