"""Workloads and retries through a whole run: record, journal, gates, resume, report."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console

from turbo_lab.core.errors import UsageError
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.experiment import asked, gates, run_folder
from turbo_lab.experiment.arms import observed
from turbo_lab.experiment.bench import run_bench
from turbo_lab.experiment.plan import BenchPlan
from turbo_lab.experiment.requests import require_context
from turbo_lab.experiment.run_folder import REQUESTS_NAME, load_run, shifted
from turbo_lab.experiment.verify import recorded_plan
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.records import store
from turbo_lab.records.journal import read_rows
from turbo_lab.report.bench import render_run
from turbo_lab.report.workload_text import print_workload, workload_lines
from turbo_lab.workload.shape import Tenant, Workload
from turbo_lab.workload.traces import TraceRow

from .conftest import made_run, quick_options, quick_plan

FAST = Script(replies=(Reply(speech=Speech(ttft_s=0.01, gap_s=0.001)),))
TALK = {"workload": Workload(kind="multi-turn", turns=3), "requests": 12, "concurrency": 2,
        "input_tokens": 10}  # fmt: skip


def measure(folder, script=FAST, **more):
    with MockServer(script) as server:
        run = run_bench(server.base_url, plan=quick_plan(**more), out=folder,
                        options=quick_options())  # fmt: skip
        return run, [e for e in server.log if (e.request_id or "").startswith("r")]


def gate(run, name):
    return next(g for g in run.record.gates if g.name == name)


@pytest.fixture(scope="module")
def talk(tmp_path_factory):
    return measure(tmp_path_factory.mktemp("talk"), **TALK)


def test_conversations_grow_by_the_asked_length_and_carry_the_servers_replies(talk):
    run, log = talk
    by_id = {e.request_id: e for e in log}
    third = by_id["r00002"].body["messages"]
    assert [m["role"] for m in third] == ["user", "assistant"] * 2 + ["user"]
    assert third[1]["content"] == run.evidence.timelines[0].text
    assert asked.input_lengths(run.evidence.plan, run.evidence.timelines) == [(10, 10)] * 12
    assert gate(run, "input length").passed and "each turn adds" in gate(run, "input length").detail
    assert run.evidence.timelines[4].labels == {"conversation": 1, "turn": 2}
    assert run.record.variables["turns"] == 3 and run.record.variables["workload"] == "multi-turn"


def test_what_a_cache_could_find_is_known(talk):
    """Prompts 10, 24, 38 of which 0, 14, 28 were sent before (replies of 4 tokens)."""
    run, _ = talk
    assert observed(run.record, "prompts")["shared_share"] == pytest.approx(42 / 72)
    rows = [{"t_s": h, "engine": {gates.HITS[0]: h, gates.QUERIES[0]: q}}
            for h, q in ((0, 0), (40, 72))]  # fmt: skip
    found = gates._prefix_hits(replace(run.evidence, resources=rows))
    assert found.passed and "the workload repeats 58.3%" in found.detail
    rows[1]["engine"][gates.HITS[0]] = 70
    assert gates._prefix_hits(replace(run.evidence, resources=rows)).passed is False
    rows[1]["engine"][gates.HITS[0]] = 1
    low = gates._prefix_hits(replace(run.evidence, resources=rows))
    assert low.passed and "was not kept" in low.detail


def test_turns_have_a_table_in_text_and_page(talk):
    run, _ = talk
    rows = observed(run.record, "groups")["turn"]
    assert [(r["group"], r["attempted"]) for r in rows] == [("1", 4), ("2", 4), ("3", 4)]
    console = Console(record=True, width=120)
    print_workload(run.record, console)
    assert "By turn" in console.export_text()
    page = render_run(run.record, run.evidence.timelines)
    assert page.index("<h2>By turn</h2>") < page.index("<h2>Validity gates</h2>")


def test_an_interrupted_conversation_is_asked_anew_and_nothing_counts_twice(tmp_path):
    measure(tmp_path, **TALK)
    path = tmp_path / REQUESTS_NAME
    rows = [r for r in read_rows(path) if not (r["kind"] == "request" and r["index"] in (2, 9))]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows[:-1]))
    (tmp_path / "record.json").unlink()
    assert load_run(tmp_path).missing() == [0, 1, 2, 9, 10, 11]
    with MockServer(FAST) as server:
        plan = quick_plan(**TALK)
        run = run_bench(server.base_url, plan=plan, out=tmp_path,
                        options=quick_options(resume=True))  # fmt: skip
        sent = [e.request_id for e in server.log if (e.request_id or "").startswith("r")]
    assert sorted(sent) == [f"r{i:05d}" for i in (0, 1, 2, 9, 10, 11)]
    assert run.record.complete and len(run.evidence.timelines) == 12
    assert "4 turns of interrupted conversations were asked anew" in gate(run, "complete").detail
    saved = load_run(tmp_path)
    assert saved.restarted == 4 and saved.missing() == [] and observed(run.record, "summary")[
        "attempted"] == 12  # fmt: skip


def test_a_conversation_whose_server_died_is_missing_as_a_whole(tmp_path):
    plan = quick_plan(**{**TALK, "requests": 6})
    turns = [
        Timeline(sent_s=1.0, status_code=200, closed_s=2.0),
        Timeline(sent_s=2.0, closed_s=3.0, error="the connection broke: reset"),
        Timeline(error="not sent: turn 2 of this conversation failed (the connection broke)"),
    ]
    with run_folder.begin(tmp_path, {"plan": plan.to_dict(), "server": {}}) as journal:
        journal.append({"kind": "session", "started_at": "now", "clock_s": 0.0})
        for index, one in enumerate(turns):
            journal.append(run_folder.request_row(index, one))
        saved = load_run(tmp_path)
        assert saved.missing() == [0, 1, 2, 3, 4, 5] and saved.stale() == [0, 2]
        journal.append({"kind": "anew", "indexes": saved.stale()})
    saved = load_run(tmp_path)
    assert (saved.lost, saved.restarted) == (1, 1), "a turn that was never sent is not asked anew"
    assert list(saved.timelines) == [1]


def test_a_failed_turn_is_no_reason_to_ask_the_conversation_again(tmp_path):
    script = Script(replies=(Reply(status=500, match="r00001"), *FAST.replies))
    run, log = measure(tmp_path, script, **TALK)
    assert len(log) == 11 and load_run(tmp_path).missing() == []
    assert "1 x HTTP 500" in gate(run, "failures").detail
    assert "1 x not sent: turn 2" in gate(run, "failures").detail


def test_shared_prefixes_are_shared_to_the_word_and_lengths_stay_exact(tmp_path):
    work = Workload(kind="shared-prefix", prefixes=2, prefix_tokens=12)
    run, log = measure(tmp_path, workload=work, requests=8, input_tokens=20)
    texts = {e.request_id: e.body["messages"][0]["content"].split() for e in log}
    assert {len(t) for t in texts.values()} == {20}
    heads = [" ".join(texts[f"r{i:05d}"][:12]) for i in range(8)]
    assert heads[0] == heads[2] != heads[1] == heads[3]
    assert len({" ".join(t) for t in texts.values()}) == 8
    assert observed(run.record, "prompts")["shared_share"] == pytest.approx(6 * 12 / 160)
    assert [r["group"] for r in observed(run.record, "groups")["prefix use"]] == ["first", "later"]
    warm = run_warmups(tmp_path)
    assert not warm & set(heads)


def run_warmups(folder) -> set[str]:
    """Beginnings of the warm-up prompts of one more run of the same plan."""
    plan = load_run(folder).plan
    with MockServer(FAST) as server:
        run_bench(server.base_url, plan=plan, out=folder / "again", options=quick_options())
        found = [e for e in server.log if (e.request_id or "").startswith("warmup")]
    assert len(found) == plan.warmup
    return {" ".join(e.body["messages"][0]["content"].split()[:12]) for e in found}


def test_tenants_have_their_own_lengths_table_and_fairness(tmp_path):
    slow = Reply(speech=Speech(ttft_s=0.5, gap_s=0.0), match='"max_tokens": 6')
    tenants = (Tenant(name="small", share=3), Tenant(name="big", input_tokens=40, output_tokens=6))
    run, log = measure(
        tmp_path, Script(replies=(slow, *FAST.replies)), requests=16, concurrency=4,
        workload=Workload(kind="tenants", tenants=tenants),
    )  # fmt: skip
    assert sum(e.body["max_tokens"] == 6 for e in log) == 4
    for name in ("input length", "output length"):
        assert gate(run, name).passed is True, gate(run, name)
    assert "asked 22 tokens" in gate(run, "input length").detail
    found = observed(run.record, "groups")
    big, small = found["tenant"]
    assert (big["group"], big["attempted"], small["attempted"]) == ("big", 4, 12)
    assert big["ttft_p50_s"] > 0.49 > small["ttft_p50_s"]
    assert found["fairness"]["jain_served"] == pytest.approx(1.0)
    assert 0.5 <= found["fairness"]["jain_ttft"] < 0.8
    assert any("Jain's index" in line for line in workload_lines(run.record))


def test_a_trace_gives_arrivals_and_lengths_and_needs_no_file_later(tmp_path):
    rows = (TraceRow(0.0, 10, 2), TraceRow(0.2, 30, 5), TraceRow(0.3, 20, 3))
    work = Workload(trace=rows, trace_name="mine.csv", trace_speed=2.0)
    run, _ = measure(tmp_path, workload=work, requests=3, concurrency=None)
    times = [t.scheduled_s - run.evidence.timelines[0].scheduled_s for t in run.evidence.timelines]
    assert times == pytest.approx([0.0, 0.1, 0.15])
    assert asked.output_lengths(run.evidence.plan, run.evidence.timelines) == [
        (2, 2), (5, 5), (3, 3),
    ]  # fmt: skip
    assert gate(run, "input length").passed and gate(run, "output length").passed
    variables = run.record.variables
    assert variables["arrivals"] == "trace" and variables["trace_name"] == "mine.csv"
    assert variables["input_tokens"] is None and variables["trace_rows"].startswith("sha256:")
    assert recorded_plan(store.load(tmp_path / "record.json")).workload == work


@pytest.mark.parametrize("load", [{}, {"concurrency": None, "rate_req_s": 50.0}])
def test_retries_count_once_are_shown_and_warn(tmp_path, load):
    busy = Reply(status=503, match="r00003")
    script = Script(replies=(busy, busy, Reply(speech=Speech(ttft_s=0.0), match="r00003"),
                             *FAST.replies))  # fmt: skip
    run, log = measure(tmp_path, script, requests=6, retries=2, **load)
    assert len(log) == 8 and len(run.evidence.timelines) == 6
    found = observed(run.record, "attempts")
    assert found == {"requests": 6, "sends": 8, "refused": {"HTTP 503": 2}, "retried": 1,
                     "succeeded_after_retry": 1, "failed_after_retry": 0}  # fmt: skip
    assert gate(run, "failures").passed is True
    assert gate(run, "retries").passed is False and "retries" not in gates.BLOCKING
    assert "8 sends for 6 requests, 2 refused (2 x HTTP 503)" in workload_lines(run.record)[0]
    ttft = next(m for m in run.record.measurements if m.name == "ttft_s")
    assert ttft.samples[3] > 0.3 and run.record.variables["retries"] == 2
    statuses = [a.status_code for a in load_run(tmp_path).timelines[3].attempts]
    assert statuses == [503, 503, 200], "kept in the journal"


def test_requests_that_are_refused_to_the_end_fail_once(tmp_path):
    script = Script(replies=(Reply(status=429, match="r00001"), *FAST.replies))
    run, _ = measure(tmp_path, script, requests=4, retries=1)
    found = observed(run.record, "attempts")
    assert (found["sends"], found["failed_after_retry"]) == (5, 1)
    assert gate(run, "failures").detail.startswith("1 of 4 requests failed: 1 x HTTP 429")


def test_attempts_move_with_the_session():
    t = Timeline(sent_s=1.0, closed_s=3.0, attempts=[(1.0, 503, 1.5, "x"), (2.0, 200, 3.0, None)])
    assert [a.sent_s for a in shifted(t, 10.0).validate().attempts] == [11.0, 12.0]


def test_a_plain_run_is_as_it_was(tmp_path):
    """Old journals load, and a plain record has the variables and gates it always had."""
    run = made_run(tmp_path / "a")
    assert not {"workload", "turns", "retries"} & set(run.record.variables)
    assert "retries" not in {g.name for g in run.record.gates}
    assert observed(run.record, "groups") is None and workload_lines(run.record) == []
    path = tmp_path / "a" / REQUESTS_NAME
    rows = read_rows(path)
    for key in ("workload", "retries"):
        del rows[0]["plan"][key]
    for row in rows:
        for key in ("attempts", "labels"):
            row.get("timeline", {}).pop(key, None)
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    saved = load_run(tmp_path / "a")
    assert saved.ordered() == list(run.evidence.timelines) and saved.plan == run.evidence.plan


def test_a_plan_with_a_workload_survives_json_and_shows_in_its_digests():
    plan = quick_plan(**TALK, retries=1)
    again = BenchPlan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert again == plan and again.digest() == plan.digest()
    for other in (quick_plan(**{**TALK, "workload": Workload(kind="multi-turn", turns=2)}),
                  quick_plan(**TALK)):  # fmt: skip
        assert other.digest() != plan.digest() and other.shape_digest() != plan.shape_digest()
    assert len(quick_plan(**{**TALK, "concurrency": None, "rate_req_s": 5.0}).schedule_s()) == 4


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({**TALK, "requests": 13}, "give 12 or 15"),
        ({"retries": -1}, "retries is -1"),
        ({"workload": {"kind": "tenants"}}, "needs tenants"),
        ({"workload": Workload(trace=(TraceRow(0, 1, 1),)), "requests": 1}, "own arrivals"),
        ({**TALK, "declared": {"turns": 2}}, "cannot be declared"),
    ],
)
def test_a_wrong_plan_is_refused(fields, words):
    with pytest.raises(UsageError, match=words):
        quick_plan(**fields)


def test_a_request_beyond_the_context_is_refused_before_the_run():
    require_context(quick_plan(), context_tokens=None)
    require_context(quick_plan(**TALK), context_tokens=42)
    with pytest.raises(UsageError, match=r"request 2 asks for 42 tokens.*context is 41"):
        require_context(quick_plan(**TALK), context_tokens=41)
