"""What a client's timelines tell: each failure has its cause, and a good run has none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.diagnose.client_rules import SLOW_FACTOR, client_findings, failure_cause
from turbo_lab.diagnose.pages import parse_page
from turbo_lab.metrics.timeline import Attempt, Chunk, Timeline

E2E = "vllm:e2e_request_latency_seconds"


def good(sent_s: float = 0.0, e2e_s: float = 1.0, **fields) -> Timeline:
    chunks = (Chunk(sent_s + e2e_s / 2, 1), Chunk(sent_s + e2e_s, 1))
    return Timeline(sent_s=sent_s, status_code=200, chunks=chunks, finish_reason="length",
                    saw_done=True, closed_s=sent_s + e2e_s, **fields)  # fmt: skip


def failed(error: str | None = None, status: int | None = None, **fields) -> Timeline:
    return Timeline(sent_s=0.0, status_code=status, error=error, closed_s=1.0, **fields)


def causes(runs, **fields) -> list[str]:
    return [finding.cause for finding in client_findings(runs, **fields)]


LONG = '{"error":{"message":"This model\'s maximum context length is 256 tokens."}}'


@pytest.mark.parametrize(
    ("run", "cause"),
    [
        (failed("HTTP 401: Unauthorized", 401), "wrong_key"),
        (failed("HTTP 403: no", 403), "wrong_key"),
        (failed("HTTP 404: The model `x` does not exist.", 404), "wrong_model_name"),
        (failed("HTTP 404: Not Found", 404), "bad_request_body"),
        (failed(f"HTTP 400: {LONG}", 400), "prompt_too_long"),
        (failed("HTTP 400: temperature must be non-negative", 400), "bad_request_body"),
        (failed("HTTP 429: slow down", 429), "rate_limited"),
        (failed("HTTP 503: overloaded", 503), "server_errors"),
        (failed("cannot connect to http://127.0.0.1:1: refused"), "peer_unreachable"),
        (failed("no connection within 30 s"), "peer_unreachable"),
        (failed("timed out after 3 s", 200), "request_timeouts"),
        (failed("the connection broke: ConnectionResetError", 200), "connection_broken"),
        (failed(None, 200, chunks=(Chunk(0.5, 1),)), "connection_broken"),
        (failed("the server sent an error in the stream: {}", 200), "server_errors"),
        (good(), None),
    ],
)
def test_each_failure_has_its_cause(run: Timeline, cause: str | None) -> None:
    assert failure_cause(run) == cause
    assert causes([run]) == ([cause] if cause else [])


def test_one_failure_of_many_is_no_finding() -> None:
    runs = [good(i) for i in range(39)] + [failed("HTTP 503: x", 503)]
    assert causes(runs) == []
    assert causes(runs[-10:]) == ["server_errors"]


def test_turns_that_were_never_sent_count_for_nothing() -> None:
    never = failed("not sent: turn 2 of this conversation failed (HTTP 500)")
    assert causes([good(), never]) == []


def test_the_commonest_failure_is_told_first_and_quotes_the_answer() -> None:
    runs = [failed("HTTP 401: who are you", 401), *[failed("timed out after 1 s")] * 3]
    first, second = client_findings(runs)
    assert (first.cause, second.cause) == ("request_timeouts", "wrong_key")
    assert "who are you" in second.evidence and first.count == 3


def refused(times: int) -> tuple[Attempt, ...]:
    tries = [Attempt(float(i), None, i + 0.5, "cannot connect") for i in range(times)]
    return (*tries, Attempt(float(times), 200, times + 1.0))


def test_a_client_that_waited_for_the_start_met_a_cold_server() -> None:
    first = good(0.0, 31.0, attempts=refused(5))
    runs = [first, *[good(40.0 + i) for i in range(4)]]
    (finding,) = client_findings(runs)
    assert finding.cause == "cold_start" and "refused 5 times" in finding.evidence
    assert causes(runs[1:]) == []
    # Refusals in between are a server that comes and goes, not a start.
    assert "cold_start" not in causes([*runs[1:], good(90.0, 31.0, attempts=refused(5))])


def page(mean_s: float, count: int):
    text = f"{E2E}_sum {mean_s * count}\n{E2E}_count {count}\n"
    return parse_page(text, source="metrics")


@given(st.floats(0.2, 50), st.floats(1.0, 20.0), st.integers(1, 9))
def test_two_clocks_are_compared_over_the_same_requests_alone(
    server_s: float, factor: float, count: int
) -> None:
    runs = [good(100.0 * i, factor * server_s) for i in range(count)]
    slow = causes(runs, server=page(server_s, count)) == ["slow_client"]
    if abs(factor - SLOW_FACTOR) > 0.01:
        assert slow == (factor > SLOW_FACTOR)
    assert causes(runs, server=page(server_s, count + 1)) == []
    assert causes(runs) == []
