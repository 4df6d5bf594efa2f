"""Retries: one request stays one request, with all its waiting, and every attempt is kept."""

from __future__ import annotations

import json

import pytest

from turbo_lab.client.load import run_closed_loop, run_open_loop
from turbo_lab.client.retry import FIRST_PAUSE_S, LONGEST_PAUSE_S, pause_s, was_refused
from turbo_lab.core.errors import UsageError
from turbo_lab.engines.base import free_port
from turbo_lab.engines.mock_script import Reply, Script, Speech, Step, event, payload
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.metrics import definitions
from turbo_lab.metrics.summary import summarize
from turbo_lab.metrics.timeline import Timeline, TimelineError
from turbo_lab.workload.request import Request

GOOD = Reply(speech=Speech(ttft_s=0.01, gap_s=0.0, tokens=2))
BUSY, FULL = Reply(status=503), Reply(status=429)


def ask(script: Script, *, count: int = 1, retries: int = 0, **more):
    requests = [Request(f"question {i}", max_tokens=2) for i in range(count)]
    with MockServer(script) as server:
        runs = run_closed_loop(
            requests, base_url=server.base_url, concurrency=1, retries=retries, **more
        )
        return runs, server.log


def test_a_refused_request_is_sent_again_and_counts_once_with_its_whole_time():
    runs, log = ask(Script(replies=(BUSY, FULL, GOOD)), retries=3)
    (one,) = runs
    assert len(log) == 3 and [e.status for e in log] == [503, 429, 200]
    assert [a.status_code for a in one.attempts] == [503, 429, 200]
    assert one.status_code == 200 and one.sent_s == one.attempts[0].sent_s
    waited = pause_s(1) + pause_s(2)
    assert definitions.ttft_s(one) > waited + 0.01, "the waiting is in the latency"
    assert definitions.connect_s(one) is None or definitions.connect_s(one) < waited
    found = summarize(runs)
    assert (found.attempted, found.succeeded, found.failures) == (1, 1, {})
    assert found.notes == {definitions.RETRIED: 1}
    again = Timeline.from_dict(json.loads(json.dumps(one.to_dict()))).validate()
    assert again == one


def test_a_request_that_is_refused_to_the_end_fails_once():
    runs, log = ask(Script(replies=(BUSY,)), retries=2)
    assert len(log) == 3 and len(runs[0].attempts) == 3
    assert summarize(runs).failures == {"HTTP 503": 1}


def test_nothing_is_sent_again_by_default():
    runs, log = ask(Script(replies=(BUSY, GOOD)), count=2)
    assert len(log) == 2 and summarize(runs).failures == {"HTTP 503": 1}
    assert not any(r.attempts for r in runs)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=500),
        Reply(status=400),
        Reply(steps=(event(payload("a")),), end="truncate"),
        Reply(steps=(event({"error": {"message": "503 in the middle"}}),)),
        Reply(status=200, content_type="application/json", steps=(Step(0.0, b"{}"),)),
    ],
)
def test_what_was_no_refusal_is_never_sent_again(reply):
    runs, log = ask(Script(replies=(reply, GOOD)), retries=3)
    assert len(log) == 1 and not runs[0].attempts and summarize(runs).failed == 1


def test_an_open_loop_counts_from_the_schedule():
    with MockServer(Script(replies=(BUSY, GOOD))) as server:
        (one,) = run_open_loop(
            [Request("q", max_tokens=2)], base_url=server.base_url, schedule_s=[0.0], retries=1
        )
    first = one.attempts[0].sent_s - one.scheduled_s
    assert definitions.dispatch_lag_s(one) == pytest.approx(first), "the first send's, no later one"
    assert definitions.ttft_scheduled_s(one) > FIRST_PAUSE_S


def test_a_refused_connection_is_tried_again():
    (one,) = run_closed_loop(
        [Request("q")], base_url=f"http://127.0.0.1:{free_port()}", concurrency=1, retries=2
    )
    assert [a.status_code for a in one.attempts] == [None, None, None]
    assert all("cannot connect" in (a.error or "") for a in one.attempts)


def test_the_pause_doubles_up_to_its_limit():
    assert [pause_s(n) for n in (1, 2, 3)] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pause_s(60) == LONGEST_PAUSE_S


def test_a_token_makes_it_no_refusal():
    begun = Timeline(sent_s=0.0, chunks=[(0.1, 1, "content")], status_code=503, closed_s=0.2)
    assert not was_refused(begun) and was_refused(Timeline(status_code=503))


def test_attempts_that_overlap_cannot_have_happened():
    broken = Timeline(
        sent_s=0.0, closed_s=2.0, attempts=[(0.0, 503, 1.0, "x"), (0.5, 200, 2.0, None)]
    )
    with pytest.raises(TimelineError, match="attempt 2"):
        broken.validate()


def test_a_negative_number_is_refused():
    with pytest.raises(UsageError, match="retries is -1"):
        run_closed_loop([Request("q")], base_url="http://x", concurrency=1, retries=-1)
