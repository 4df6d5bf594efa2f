"""Faults as data: what counts as right, and that the table keeps its promises."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.diagnose.causes import cause_named
from turbo_lab.diagnose.injection.catalog import (
    FAULTS,
    examine,
    fault_named,
)
from turbo_lab.diagnose.injection.fault import Evidence, Examined, Fault, judge, score
from turbo_lab.diagnose.injection.figures import figures, time_split
from turbo_lab.diagnose.injection.views import (
    by_source,
    explain,
    interviewed,
    marks,
    number_of,
    row_text,
    table_rows,
)
from turbo_lab.diagnose.page_rules import DEFAULT_LIMITS
from turbo_lab.diagnose.pages import parse_page
from turbo_lab.metrics.timeline import Chunk, Timeline

IDS = ("queue_pressure", "ttft_bound", "wrong_key", "disk_full")


def test_the_table_has_its_faults_and_each_names_known_causes() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names) >= 15
    for fault in FAULTS:
        assert fault.causes and not set(fault.causes) & set(fault.consequences)
        for cause in (*fault.causes, *fault.consequences):
            assert cause_named(cause)
    ends = [fault.when == "end" for fault in FAULTS]
    assert ends == sorted(ends), "what ends a server comes last"
    with pytest.raises(UsageError, match="overload"):
        fault_named("overlaod")


def row(on: bool, expected, consequences, named, reason=None) -> Examined:
    causes = {"log": tuple(named), "metrics": (), "client": ()}
    return Examined("f", on, tuple(expected), tuple(consequences), causes, (), reason)


@given(st.booleans(), *[st.sets(st.sampled_from(IDS)) for _ in range(3)])
def test_every_named_cause_is_right_wrong_or_a_consequence(on, expected, more, named) -> None:
    consequences = more - expected
    one = row(on, expected, consequences, named)
    assert one.right | one.wrong | (one.named & consequences) == one.named
    assert not one.right & one.wrong
    assert one.missed == (expected - named if on else set())
    if not on:
        assert one.wrong == one.named
    assert Examined.from_dict(json.loads(json.dumps(one.to_dict()))) == one


def test_precision_and_recall_count_true_consequences_neither_way() -> None:
    rows = [
        row(True, ["queue_pressure"], ["ttft_bound"], ["queue_pressure", "ttft_bound"]),
        row(True, ["wrong_key"], [], ["disk_full"]),
        row(False, ["wrong_key"], [], ["wrong_key"]),
        Examined("x", True, ("disk_full",), (), reason="no mounts here"),
    ]
    found = score(rows)
    assert (found.right, found.wrong, found.missed, found.skipped) == (1, 2, 1, 1)
    assert found.precision == pytest.approx(1 / 3) and found.recall == 0.5
    assert "precision 0.333, recall 0.500" in str(found)
    assert score([]).precision is None and "none" in str(score([]))


LOG = b'INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 401 Unauthorized\n' * 4
PAGE = parse_page("vllm:num_requests_waiting 80\nvllm:num_requests_running 4\n", source="metrics")


def made(evidence: Evidence | None) -> Fault:
    def inject(ward, on):
        if evidence is None:
            raise UnmeasuredError("not on this system")
        return nullcontext(evidence if on else Evidence())

    return Fault("made", "x", "y", ("wrong_key", "queue_pressure"), "running", inject)


NO_WARD = SimpleNamespace(patient=SimpleNamespace(limits=DEFAULT_LIMITS))


def test_each_source_is_looked_at_alone_and_a_proof_is_kept() -> None:
    one = examine(NO_WARD, made(Evidence(LOG, PAGE)))  # type: ignore[arg-type]
    assert one.causes == {"log": ("wrong_key",), "metrics": ("queue_pressure",), "client": ()}
    assert not one.missed and not one.wrong
    assert one.seen_by("log", "metrics") and not one.seen_by("log", "client")
    assert {proof["source"] for proof in one.proofs} == {"log", "metrics"}
    assert "401" in one.proofs[0]["evidence"] and "log: wrong_key" in row_text(one)
    off = examine(NO_WARD, made(Evidence(LOG, PAGE)), on=False)  # type: ignore[arg-type]
    assert not off.named and "no finding" in row_text(off)
    (shown,) = table_rows([one])
    assert shown["verdict"] == "named" and table_rows([off])[0]["verdict"] == "quiet"


def test_a_fault_that_cannot_be_injected_here_says_why() -> None:
    one = examine(NO_WARD, made(None))  # type: ignore[arg-type]
    assert one.reason == "not on this system" and not one.missed
    assert table_rows([one])[0]["verdict"] == "not injected" and "not on this" in row_text(one)


def test_a_false_alarm_is_shown() -> None:
    off = judge(made(Evidence()), Evidence(LOG), on=False)
    assert table_rows([off])[0]["verdict"] == "false alarm; wrong: wrong_key"


def test_what_is_shown_of_a_fault() -> None:
    one = examine(NO_WARD, made(Evidence(LOG, PAGE)))  # type: ignore[arg-type]
    two = row(True, ["wrong_key"], [], ["wrong_key"])
    none = examine(NO_WARD, made(None))  # type: ignore[arg-type]
    shown = marks([one, none, examine(NO_WARD, made(Evidence(LOG)), on=False)])  # type: ignore[arg-type]
    assert shown == {"made": {"log": "consequence", "metrics": "consequence", "client": "nothing"}}
    assert marks([two])["f"]["log"] == "cause"
    text = explain(one)
    assert "wrong_key" in text and "401" in text and "next probe" in text and "fix" in text
    assert "no finding" in explain(none)
    assert number_of([replace(two, numbers={"queue_share": 0.6})], "f", "queue_share") == 0.6
    with pytest.raises(UnmeasuredError, match="not injected in this run"):
        number_of([one], "other", "queue_share")
    with pytest.raises(UnmeasuredError, match="no queue_share"):
        number_of([two], "f", "queue_share")
    assert by_source({"log": ("a", "b"), "client": ("c",)}) == {
        "a": "log",
        "b": "log",
        "c": "client",
    }


def test_the_interview_is_answered_by_the_findings() -> None:
    slow = row(True, ["queue_pressure"], [], ["queue_pressure"])
    assert interviewed(slow, symptom="slow").found.name == "log"
    cold = row(True, ["cold_start"], [], ["cold_start"])
    walked = interviewed(cold, symptom="slow")
    assert walked.found.name == "smallest request" and len(walked.asked) == 3
    assert interviewed(row(True, ["disk_full"], [], []), symptom="slow").found is None


def test_a_fault_in_numbers() -> None:
    page = parse_page(
        "vllm:e2e_request_latency_seconds_sum 8\nvllm:e2e_request_latency_seconds_count 4\n"
        "vllm:request_queue_time_seconds_sum 4\nvllm:request_queue_time_seconds_count 4\n"
        "vllm:num_preemptions_total 3\n", source="metrics",
    )  # fmt: skip
    runs = tuple(
        Timeline(sent_s=float(i), status_code=200, chunks=(Chunk(i + 3.0, 1),), closed_s=i + 3.0,
                 finish_reason="length", saw_done=True) for i in range(4)
    )  # fmt: skip
    found = figures(Evidence(b"", page, runs))
    assert found["queue_share"] == 0.5 and found["preemptions"] == 3 and found["client_s"] == 3.0
    assert time_split(found) == {"queue": 1.0, "engine": 1.0, "outside the server": 1.0}
    empty = figures(Evidence())
    assert empty["requests"] == 0 and time_split(empty) is None
    assert [n for n, v in empty.items() if v is not None] == ["requests", "failed"]
