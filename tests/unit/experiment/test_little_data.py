"""Runs with hardly any data: one request, or none that succeeded."""

from __future__ import annotations

import pytest

from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.experiment.arms import LEAST_SAMPLES, load_arm
from turbo_lab.experiment.compare import compare
from turbo_lab.experiment.metric_names import metric_name
from turbo_lab.experiment.verify import interval
from turbo_lab.report.comparison import render_comparisons
from turbo_lab.report.comparison_text import comparison_lines, comparison_to_json

from .conftest import made_run


def shown(a, b, metric: str):
    """The comparison, after everything that prints it has done so."""
    found = compare(load_arm(a), load_arm(b), declared=None, metric=metric, store=False)
    assert render_comparisons([found]) and comparison_to_json(found)
    return found, "\n".join(comparison_lines(found))


@pytest.mark.parametrize("metric", ["throughput", "request_rate"])
def test_a_rate_out_of_a_few_requests_is_no_verdict(tmp_path, metric):
    """The stretches of such a run repeat one request's pace: ten equal values, one sample."""
    few, many = LEAST_SAMPLES - 1, LEAST_SAMPLES
    slow = made_run(tmp_path / "slow", slower=2.0, requests=few, concurrency=1).folder
    fast = made_run(tmp_path / "fast", requests=few, concurrency=1).folder
    found, said = shown(slow, fast, metric)
    assert found.verdict == "cannot tell"
    assert f"comes from {few} requests; a verdict needs at least {LEAST_SAMPLES}" in said
    record = load_arm(slow).records[0]
    assert interval(record, metric_name(metric), folder=tmp_path) is None
    slow = made_run(tmp_path / "slow2", slower=2.0, requests=many, concurrency=1).folder
    fast = made_run(tmp_path / "fast2", requests=many, concurrency=1).folder
    assert shown(slow, fast, metric)[0].verdict == "better"


def test_runs_in_which_nothing_succeeded_can_be_shown(bench_mock, tmp_path):
    script = Script(
        replies=(Reply(status=500, match="r0000"), Reply(speech=Speech(ttft_s=0.01, gap_s=0.001)))
    )
    folder = bench_mock(tmp_path, script, requests=3, warmup=0).folder
    for metric in ("ttft", "throughput", "tpot.p99", "goodput"):
        found, said = shown(folder, folder, metric)
        assert found.verdict == "no data" and found.quality is None
        assert "equal replies" not in said
