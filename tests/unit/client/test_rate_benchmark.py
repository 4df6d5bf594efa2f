"""The client-rate benchmark: how it judges what a client reported, and what its table says."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "benchmarks"
COUNT, RATE = 200, 100.0


@pytest.fixture(scope="module")
def scripts():
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield {n: importlib.import_module(n) for n in ("rate_clients", "rate_run", "client_rate")}
    finally:
        sys.path.remove(str(SCRIPTS))


def mock_log(*, rate: float = RATE, late_s: float = 0.0) -> list[dict]:
    rows = []
    for i in range(COUNT):
        got_s = 100.0 + i / rate
        sends = [(got_s + 0.05 + late_s, "empty")]
        sends += [(got_s + 0.05 + late_s + 0.01 * k, "content") for k in range(16)]
        rows.append({"received_s": got_s, "ended_s": got_s + 0.3, "sends": sends})
    return rows


def judged(scripts, log, *, lag_s: float = 0.001, seen: int = COUNT, errors: int = 0, mock_s=1.0):
    ttfts = [e["sends"][1][0] - e["received_s"] + lag_s for e in log][:seen]
    return scripts["rate_run"].judge(
        RATE, COUNT, log, ttfts, errors, cpu_s=2.0, mock_cpu_s=mock_s
    )  # fmt: skip


def test_a_good_run_is_sustained(scripts):
    found = judged(scripts, mock_log())
    assert found.sustained and not found.mock_is_limit
    assert found.lag_p99_s == pytest.approx(0.001)
    assert found.sent_rate == pytest.approx(RATE)
    assert found.late_p99_s == pytest.approx(0.0, abs=1e-6)
    assert (found.tokens, found.errors) == (16 * COUNT, 0)
    assert scripts["client_rate"].per_thousand_ms(found) == pytest.approx(2.0 / 3200 * 1e6)


@pytest.mark.parametrize(
    ("log", "more"),
    [
        (mock_log(), {"lag_s": 0.006}),
        (mock_log(), {"errors": 1}),
        (mock_log(), {"seen": COUNT - 1}),
        (mock_log(), {"seen": 0}),
        (mock_log(rate=0.9 * RATE), {}),
    ],
    ids=["late", "an error", "one is missing", "no result", "sent too slowly"],
)
def test_what_is_not_sustained(scripts, log, more):
    assert not judged(scripts, log, **more).sustained


def test_a_mock_at_its_limit_is_said(scripts):
    late = judged(scripts, mock_log(late_s=0.003), lag_s=0.006)
    busy = judged(scripts, mock_log(), lag_s=0.006, mock_s=2.2)
    for found in (late, busy):
        assert found.mock_is_limit
        assert "mock is the limit" in scripts["client_rate"].line(found)
    assert "not sustained" in scripts["client_rate"].line(judged(scripts, mock_log(), lag_s=0.006))


def test_arrivals_behind_the_schedule_are_counted_from_the_earliest(scripts):
    times = [i / RATE for i in range(200)]
    shifted = [t + (0.25 if i >= 150 else 0.0) for i, t in enumerate(times)]
    assert scripts["rate_run"].lateness_p99_s(shifted, RATE) == pytest.approx(0.25)


def test_the_table_gives_the_ratio_and_says_when_it_is_a_lower_bound(scripts):
    good = judged(scripts, mock_log())
    bad = replace(good, rate=200.0, lag_p99_s=0.02)
    runs = {
        "turbo-lab bench 1": [good, replace(good, rate=300.0, sent_rate=300.0)],
        "peer 2": [good, bad],
    }
    text = scripts["client_rate"].table(runs)
    assert "ratio to the best peer: at least 3.0" in text and "200: not sustained" in text
    runs["turbo-lab bench 1"].append(replace(bad, rate=400.0))
    assert "ratio to the best peer: 3.0" in scripts["client_rate"].table(runs)
    assert "ratio" not in scripts["client_rate"].table({"turbo-lab bench 1": [good]})


def test_results_of_every_client_are_read(scripts, tmp_path):
    clients, tool = scripts["rate_clients"], "/bin/echo"
    (tmp_path / "v.json").write_text(json.dumps({"ttfts": [0.1, 0.0], "errors": ["", "boom"]}))
    assert clients.vllm("model", "1").read(tmp_path) == ([0.1], 1)
    totals = {"errored": 1, "incomplete": 2}
    one = {"requests": {"successful": [{"time_to_first_token_ms": 100.0}]},
           "metrics": {"request_totals": totals}}  # fmt: skip
    (tmp_path / "g.json").write_text(json.dumps({"benchmarks": [one]}))
    assert clients.guidellm(tool, "model").read(tmp_path) == ([0.1], 3)
    rows = [{"metrics": {"time_to_first_token": {"value": 100.0}}}, {"error": "x", "metrics": {}}]
    (tmp_path / "profile_export.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert clients.aiperf(tool, str(tmp_path), tmp_path).read(tmp_path) == ([0.1], 1)
    (tmp_path / "run").mkdir()
    record = {"measurements": [{"name": "ttft_s", "samples": [0.1, None]}]}
    (tmp_path / "run" / "record.json").write_text(json.dumps(record))
    assert clients.ours("us").read(tmp_path) == ([0.1], 1)
