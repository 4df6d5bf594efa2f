"""One run against the mock: record, journal, gates."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from turbo_lab.core.errors import EngineError, MissingDependencyError, RecordError, UsageError
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.experiment import gates, run_folder
from turbo_lab.experiment.arms import observed
from turbo_lab.experiment.bench import run_bench
from turbo_lab.experiment.plan import BenchPlan
from turbo_lab.experiment.preflight import load_tokenizer
from turbo_lab.experiment.run_folder import load_run
from turbo_lab.records import store
from turbo_lab.records.journal import Journal

from .conftest import TTFT_S, quick_options, quick_plan, speech


def gate(run, name):
    return next(g for g in run.record.gates if g.name == name)


@pytest.fixture(scope="module")
def one(bench_mock, tmp_path_factory):
    """One run against a real mock."""
    return bench_mock(tmp_path_factory.mktemp("one"), declared={"speed": 1.0}, slo={"ttft": 30.0})


def test_the_record_holds_samples_of_every_request_and_is_whole(one):
    run = one
    record = store.load(run.folder / "record.json")
    assert record == run.record and record.complete
    ttft = next(m for m in record.measurements if m.name == "ttft_s")
    assert len(ttft.samples) == 30 and ttft.value >= TTFT_S
    assert ttft.definition.startswith("send to first chunk")
    rate = next(m for m in record.measurements if m.name == "output_rate_tok_s")
    span = observed(record, "summary")["quantities"]["duration_s"]["value"]
    assert sum(rate.samples) / len(rate.samples) == pytest.approx(30 * 4 / span)
    assert record.variables["speed"] == 1.0 and record.variables["slo.ttft"] == 30.0
    assert observed(record, "slo")["attained"] == 30


def test_gates_of_a_good_run(one):
    run = one
    for name in ("complete", "failures", "server stayed up", "output length", "samples"):
        assert gate(run, name).passed is True, gate(run, name)
    assert "certify P50 (P90 needs 64" in gate(run, "samples").detail


def test_the_journal_alone_gives_the_run_back(runs):
    saved = load_run(runs["a"].folder)
    assert sorted(saved.timelines) == list(range(30)) and saved.missing() == []
    assert saved.plan.declared == {"speed": 1.0}
    assert [s.end for s in saved.sessions] == ["finished"]
    assert saved.ordered()[3].to_dict() == runs["a"].evidence.timelines[3].to_dict()


def test_prompts_differ_between_runs_with_one_seed(bench_mock, tmp_path):
    first = bench_mock(tmp_path / "1", requests=3)
    second = bench_mock(tmp_path / "2", requests=3)
    same = bench_mock(tmp_path / "3", requests=3, prompt_salt=first.evidence.plan.prompt_salt)
    digests = [observed(r.record, "prompts")["digest"] for r in (first, second, same)]
    assert digests[0] == digests[2] != digests[1]
    assert first.record.workload_digest == second.record.workload_digest


def test_prompt_length_is_calibrated_on_the_servers_own_counts(one):
    lengths = observed(one.record, "lengths")
    assert lengths == {"output_tokens_mean": 4.0, "input_tokens_mean": 16.0}


def test_a_server_that_stops_early_fails_the_length_gate(bench_mock, tmp_path):
    stubborn = Speech(ttft_s=0.01, gap_s=0.0, usage="asked")
    script = Script(replies=(Reply(speech=stubborn),))
    with MockServer(script) as server:
        run = run_bench(server.base_url, plan=quick_plan(requests=6), out=tmp_path,
                        options=quick_options())  # fmt: skip
    short = [replace(t, usage={"completion_tokens": 2}) for t in run.evidence.timelines]
    judged = gates.judge_gates(replace(run.evidence, timelines=short))
    found = next(g for g in judged if g.name == "output length")
    assert found.passed is False and "asked 4 tokens, mean 2.0" in found.detail


def test_open_loop_reports_rate_and_lag(bench_mock, tmp_path):
    run = bench_mock(tmp_path, requests=20, concurrency=None, rate_req_s=40.0,
                     arrivals="constant")  # fmt: skip
    assert "scheduled 40 req/s" in gate(run, "achieved rate").detail
    assert "dispatch lag p50" in gate(run, "client").detail


def test_a_late_client_is_the_bottleneck(runs):
    late = [replace(t, scheduled_s=t.sent_s - 0.5) for t in runs["a"].evidence.timelines]
    judged = gates.judge_gates(replace(runs["a"].evidence, timelines=late))
    assert next(g for g in judged if g.name == "client").passed is False


def test_failures_are_counted_named_and_block(bench_mock, tmp_path):
    good, bad = Reply(speech=Speech(ttft_s=0.01)), Reply(status=503, match="r0000")
    run = bench_mock(tmp_path, Script(replies=(bad, good)), requests=12)
    assert gate(run, "failures").passed is False
    assert "10 x HTTP 503" in gate(run, "failures").detail
    ttft = next(m for m in run.record.measurements if m.name == "ttft_s")
    assert ttft.samples[:10] == (None,) * 10 and None not in ttft.samples[10:]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(head_after_s=None), "timed out after 1 s.*never answered"),
        (Reply(status=401), "HTTP 401.*TURBO_LAB_API_KEY"),
        (Reply(status=200, content_type="text/html"), "OpenAI-compatible"),
        (Reply(end="hang"), "timed out"),
    ],
)
def test_a_server_that_does_not_serve_is_told_in_time(tmp_path, reply, words):
    with (
        MockServer(Script(replies=(reply,))) as server,
        pytest.raises(EngineError, match=f"(?s){words}"),
    ):
        run_bench(server.base_url, plan=quick_plan(timeout_s=1.0), out=tmp_path,
                  options=quick_options())  # fmt: skip
    assert not (tmp_path / "record.json").exists()


def test_nothing_listens(tmp_path):
    with pytest.raises(EngineError, match="cannot connect.*Start the server"):
        run_bench("http://127.0.0.1:9", plan=quick_plan(), out=tmp_path, options=quick_options())


def test_a_server_that_refuses_unknown_fields_is_asked_without(tmp_path):
    refuse = Reply(status=400, match="ignore_eos")
    with MockServer(Script(replies=(refuse, Reply(speech=Speech(ttft_s=0.01))))) as server:
        run = run_bench(server.base_url, plan=quick_plan(requests=5), out=tmp_path,
                        options=quick_options())  # fmt: skip
    assert run.record.variables["ignore_eos"] is False
    assert gate(run, "failures").passed is True


def test_the_folder_of_another_run_is_refused(runs):
    with pytest.raises(UsageError, match="already holds a run"):
        run_bench("http://127.0.0.1:9", plan=quick_plan(), out=runs["a"].folder)


def test_api_key_goes_out_and_is_written_nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("TURBO_LAB_API_KEY", "open-sesame-123")
    echo = Reply(speech=Speech(ttft_s=0.01))
    with MockServer(Script(replies=(echo,))) as server:
        run_bench(server.base_url, plan=quick_plan(requests=3), out=tmp_path,
                  options=quick_options())  # fmt: skip
    for file in tmp_path.iterdir():
        assert "open-sesame-123" not in file.read_text()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "exactly one of --rate"),
        ({"rate_req_s": 1.0, "concurrency": 1}, "exactly one"),
        ({"rate_req_s": 0.0}, "above 0"),
        ({"concurrency": 0}, "at least 1"),
        ({"concurrency": 1, "requests": 0}, "requests is 0"),
        ({"concurrency": 1, "output_tokens": 0}, "output_tokens is 0"),
        ({"rate_req_s": 1.0, "arrivals": "bursty"}, "poisson, constant, gamma:SHAPE"),
        ({"rate_req_s": 1.0, "arrivals": "gamma:x"}, "gamma shape"),
        ({"concurrency": 1, "slo": {"tftt": 1.0}}, "Did you mean 'ttft'"),
        ({"concurrency": 1, "slo": {"ttft": -1.0}}, "above 0"),
        ({"concurrency": 1, "primary_metric": "speed"}, "metric 'speed'"),
        ({"concurrency": 1, "declared": {"requests": 3}}, "cannot be declared"),
        ({"concurrency": 1, "endpoint": "talk"}, "endpoint"),
        ({"concurrency": 1, "timeout_s": 0.0}, "timeout_s"),
    ],
)
def test_a_wrong_plan_is_refused(fields, words):
    with pytest.raises(UsageError, match=words):
        BenchPlan(model="m", **fields)


def test_a_plan_survives_json():
    plan = quick_plan(slo={"ttft": 0.2}, declared={"dtype": "bf16", "eager": True})
    again = BenchPlan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert again == plan and again.digest() == plan.digest()


def test_full_disk_before_the_run(tmp_path, monkeypatch):
    import shutil

    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with MockServer(speech()) as server, pytest.raises(RecordError, match="only 1000 B are free"):
        run_bench(server.base_url, plan=quick_plan(), out=tmp_path, options=quick_options())


def test_a_model_folder_that_may_not_be_looked_into_is_no_tokenizer(tmp_path, monkeypatch):
    """A server in a container names /root/...; the client's user may not even ask what is there."""

    def private(*_, **__):
        raise PermissionError(13, "Permission denied")

    assert load_tokenizer(str(tmp_path), required=False) is None
    (tmp_path / "tokenizer.json").write_text("{}")
    assert load_tokenizer(str(tmp_path), required=False) is None, "not a tokenizer"
    with pytest.raises((UsageError, MissingDependencyError), match="tokenizer"):
        load_tokenizer(str(tmp_path), required=True)
    monkeypatch.setattr(os, "stat", private)
    assert load_tokenizer("/root/models/x", required=False) is None
    with pytest.raises(UsageError, match=r"no tokenizer\.json to read"):
        load_tokenizer("/root/models/x", required=True)


def test_of_two_runs_that_begin_in_one_folder_one_may(tmp_path):
    with run_folder.begin(tmp_path, {"plan": {}}), pytest.raises(UsageError, match="already holds"):
        run_folder.begin(tmp_path, {"plan": {}})


def test_a_disk_that_refuses_the_first_line_leaves_no_run_behind(tmp_path, monkeypatch):
    def full(self, row):
        raise RecordError("No space left on device")

    monkeypatch.setattr(Journal, "append", full)
    with pytest.raises(RecordError, match="No space"):
        run_folder.begin(tmp_path, {"plan": {}})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "row", ['{"kind":"request","index":0}', '{"kind":"session"}', '{"kind":"request","timeline":7}']
)
def test_a_row_that_no_run_writes_is_named(tmp_path, row):
    (tmp_path / run_folder.REQUESTS_NAME).write_text('{"kind":"header","plan":{}}\n' + row + "\n")
    with pytest.raises(RecordError, match="no run writes"):
        load_run(tmp_path)


def test_a_home_that_nobody_has_is_a_name_like_any_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EngineError, match="cannot connect"):
        run_bench("http://127.0.0.1:9", plan=quick_plan(), out="~nobody-of-that-name/run")
    assert (tmp_path / "~nobody-of-that-name" / "run").is_dir()
