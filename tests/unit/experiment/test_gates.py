"""Every validity gate can fail, and says why. Made-up timelines and samples: no clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turbo_lab.client.calibration import Calibration
from turbo_lab.experiment import gates
from turbo_lab.experiment.arms import Arm, observed
from turbo_lab.experiment.bench_record import make_record
from turbo_lab.experiment.compare import compare
from turbo_lab.experiment.preflight import Dialect
from turbo_lab.experiment.run_folder import load_run
from turbo_lab.experiment.server_facts import Server
from turbo_lab.records.digest import seal

from .conftest import quick_options, quick_plan


@pytest.fixture
def judged(runs):
    def run(**changes):
        found = gates.judge_gates(replace(runs["a"].evidence, **changes))
        return {g.name: g for g in found}

    return run


def counters(**grown: float) -> list[dict]:
    return [{"t_s": 0.0, "engine": dict.fromkeys(grown, 5.0)},
            {"t_s": 1.0, "engine": {name: 5.0 + by for name, by in grown.items()}}]  # fmt: skip


def test_a_truncated_reply_is_a_failure_with_its_name(runs, judged):
    cut = [replace(t, finish_reason=None, saw_done=False) for t in runs["a"].evidence.timelines[:2]]
    found = judged(timelines=[*cut, *runs["a"].evidence.timelines[2:]])["failures"]
    assert found.passed is False and "2 x truncated" in found.detail


def test_a_missing_request_makes_the_run_incomplete(runs, judged):
    found = judged(timelines=runs["a"].evidence.timelines[1:], ending="interrupted")["complete"]
    assert found.passed is False and found.detail == "29 of 30 requests; interrupted"


def test_prefix_hits_where_nothing_is_shared(judged):
    rows = counters(**{gates.HITS[0]: 30.0, gates.QUERIES[0]: 100.0})
    found = judged(resources=rows)["prefix hits"]
    assert found.passed is False and "30.0%" in found.detail and "share nothing" in found.detail
    rows = counters(**{gates.HITS[0]: 3.0, gates.QUERIES[0]: 100.0})
    assert judged(resources=rows)["prefix hits"].passed is True
    assert judged()["prefix hits"].passed is None, "not counted is not passed"


def test_preemptions_are_a_warning(judged):
    found = judged(resources=counters(**{gates.PREEMPTIONS[0]: 2.0}))["preemptions"]
    assert found.passed is False and "2 preemptions" in found.detail
    assert "preemptions" not in gates.BLOCKING
    assert judged(resources=counters(**{gates.PREEMPTIONS[0]: 0.0}))["preemptions"].passed is True


def test_prompts_of_another_length(runs, judged):
    wrong = [replace(t, usage={**t.usage, "prompt_tokens": 20})
             for t in runs["a"].evidence.timelines]  # fmt: skip
    found = judged(timelines=wrong)["input length"]
    assert found.passed is False and found.detail == "asked 16 tokens, mean 20.0 by the server"


def test_a_rate_that_was_not_kept(runs, judged):
    plan = quick_plan(concurrency=None, rate_req_s=10.0, arrivals="constant")
    sent = [replace(t, sent_s=100 + i / 5.0, scheduled_s=100 + i / 10.0, connected_s=None)
            for i, t in enumerate(runs["a"].evidence.timelines)]  # fmt: skip
    found = judged(plan=plan, timelines=sent)["achieved rate"]
    assert found.passed is False and found.detail == "scheduled 10 req/s, sent 5 req/s"


def test_too_few_samples_certify_nothing(runs, judged):
    found = judged(timelines=runs["a"].evidence.timelines[:10])["samples"]
    assert found.passed is False and "certify no percentile (P50 needs 11" in found.detail


@pytest.mark.parametrize(
    "changes",
    [
        {"resources": [{"t_s": t, "processes": {"client": {"cores": 0.97}}} for t in (0.0, 1.0)]},
        {"calibration": Calibration(0.01, 0.2, 0.3, None, 20, "10 users")},
    ],
)
def test_a_client_that_is_the_bottleneck_blocks(judged, changes):
    found = judged(**changes)["client"]
    assert found.passed is False and "client" in gates.BLOCKING


def test_drift_of_lengths_and_of_prefix_hits_is_named_in_a_comparison(runs, tmp_path):
    changed = {"lengths": {"output_tokens_mean": 3.0, "input_tokens_mean": 16.0},
               "resources": {"prefix_hit_rate": 0.4}}  # fmt: skip
    base = {**changed, "lengths": {"output_tokens_mean": 4.0, "input_tokens_mean": 16.0},
            "resources": {"prefix_hit_rate": 0.0}}  # fmt: skip
    arms = [Arm(name, (with_observations(runs[name].record, data),))
            for name, data in (("a", base), ("again", changed))]  # fmt: skip
    found = compare(*arms, declared=None, metric="ttft", folder=tmp_path)
    text = " ".join(found.caveats)
    assert "output-length drift: 4.0 against 3.0 tokens" in text
    assert "prefix-hit drift: 0.0% against 40.0%" in text and "input-length" not in text


def with_observations(record, data):
    rows = tuple(o.model_copy(update={"data": data[o.name]}) if o.name in data else o
                 for o in record.observations)  # fmt: skip
    return seal(record.model_copy(update={"observations": rows}))


def test_energy_of_a_run_comes_with_its_denominator(runs):
    rows = [{"t_s": t, "gpus": [{"power_w": 50.0, "energy_mj": mj}]}
            for t, mj in ((0.0, 0.0), (2.0, 100_000.0))]  # fmt: skip
    run = runs["a"]
    record = make_record(
        replace(run.evidence, resources=rows), base_url="http://mock",
        server=Server(run.record.engines[0]), dialect=Dialect("continuous", True, 1.0, 0.0, "x"),
        options=quick_options(), saved=load_run(run.folder),
    )  # fmt: skip
    found = observed(record, "energy")
    assert found["energy_j"] == 100.0
    assert found["kwh_per_million_output_tokens"] == pytest.approx(100 / 3.6e6 / 120 * 1e6)
    assert found["definition"] == "100 J over the run / delivered output tokens"


def test_other_work_on_the_machine_is_a_warning(judged, monkeypatch):
    monkeypatch.setattr(gates.os, "cpu_count", lambda: 4)

    def rows(percent):
        used = {"client": {"cpu_s": 1.0}, "server": {"cpu_s": 10.0}}
        later = {"client": {"cpu_s": 1.5}, "server": {"cpu_s": 11.5}}  # 2 of 4 cores for 1 s
        return [{"t_s": 0.0, "cpu_percent": 0.0, "processes": used},
                {"t_s": 1.0, "cpu_percent": percent, "processes": later}]  # fmt: skip

    found = judged(resources=rows(100.0))["quiet machine"]
    assert found.passed is False and "client and server used 2.00 of 4 cores" in found.detail
    assert "quiet machine" not in gates.BLOCKING
    assert judged(resources=rows(59.0))["quiet machine"].passed is True
    assert judged()["quiet machine"].passed is None
    gone = rows(59.0)
    gone[1]["processes"] = {"client": {"cpu_s": 1.5}}
    assert judged(resources=gone)["quiet machine"].passed is None
