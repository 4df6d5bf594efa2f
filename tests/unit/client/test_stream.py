"""The client against the scripted mock: what the Timeline says in each case."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from turbo_lab.client import stream
from turbo_lab.client.stream import Target, send_one
from turbo_lab.core.errors import UsageError
from turbo_lab.engines.mock_script import Reply, Script, Speech, Step, event, payload, split
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.metrics import definitions as d
from turbo_lab.metrics.summary import summarize
from turbo_lab.workload.request import Request

ASK = Request("hello there", model="mock", max_tokens=4, request_id="q1")


def ask(*replies: Reply, request: Request = ASK, timeout_s: float = 20):
    with MockServer(Script(replies=replies)) as server:
        return send_one(request, base_url=server.base_url, timeout_s=timeout_s)


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_a_good_reply(endpoint):
    request = Request("hello there", max_tokens=4, endpoint=endpoint, request_id="q1")
    with MockServer() as server:
        t = send_one(request, base_url=server.base_url + "/v1")
        seen = server.log[0]
    assert d.outcome(t) == d.Outcome(True, "ok")
    assert t.text == " t0 t1 t2 t3"
    assert t.usage == {"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6}
    assert [c.tokens for c in t.visible()] == [1, 1, 1, 1]
    assert t.connection_reused is False
    assert t.sent_s < t.connected_s < t.visible()[0].t_s < t.closed_s
    assert seen.request_id == "q1"
    assert seen.body["stream_options"]["continuous_usage_stats"] is True
    t.validate()


def test_w1_over_the_wire():
    usage = {"completion_tokens": 5, "prompt_tokens": 1}
    steps = (
        event(payload(role=True), after_s=0.1),
        event(payload("a")),
        event(payload("bc"), after_s=0.04),
        event(payload("de", finish="stop"), after_s=0.04),
        event(payload(usage=usage)),
        event("[DONE]", after_s=0.02),
    )
    t = ask(Reply(steps=steps))
    assert [c.kind for c in t.chunks] == ["role", "content", "content", "content", "usage", "done"]
    at = {c.kind: c.t_s for c in t.chunks}  # the last of each kind
    first = next(c.t_s for c in t.chunks if c.kind == "content")
    assert d.ttft_connected_s(t) == pytest.approx(first - t.connected_s)
    assert d.e2e_s(t) == pytest.approx(at["content"] - t.sent_s), "not to [DONE]"
    assert d.ttft_connected_s(t) > 0.09 and d.e2e_s(t) > 0.17 and at["done"] >= at["content"]
    assert d.tpot_s(t) is None  # no counts per chunk: the first chunk's tokens are unknown


def test_w7_error_inside_a_200():
    steps = (event(payload("a")), event({"error": {"message": "out of memory"}}), event("[DONE]"))
    t = ask(Reply(steps=steps))
    assert t.status_code == 200
    assert d.outcome(t) == d.Outcome(False, "error inside the stream")
    assert "out of memory" in t.error


@pytest.mark.parametrize("end", ["close", "truncate"])
def test_w8_stream_that_just_ends(end):
    t = ask(Reply(steps=(event(payload("a")),), end=end))
    assert not d.outcome(t).ok
    assert t.text == "a"
    assert (t.error is None) == (end == "close")


def test_w8_finish_without_done_is_a_success_with_a_note():
    t = ask(Reply(steps=(event(payload("a", finish="stop")),)))
    assert d.outcome(t) == d.Outcome(True, "ok", ("no [DONE]",))


def test_w8_done_without_finish_fails():
    t = ask(Reply(steps=(event(payload("a")), event("[DONE]"))))
    assert d.outcome(t).reason == "no finish_reason"


def test_w15_splits_crlf_comments_and_two_events_at_once():
    euro = event(payload("€ ", finish=None))
    at = euro.raw.index("€".encode()) + 1
    raw = (
        b": keep-alive\r\n\r\n"
        + b"data:"
        + euro.raw[6:].replace(b"\n\n", b"\r\n\r\n")
        + event(payload("b ")).raw
    )
    steps = (
        *split(euro, at=[at, at + 1], gap_s=0.01),
        Step(0.01, raw),
        event(payload("!", finish="stop"), after_s=0.01),
        event("[DONE]"),
    )
    t = ask(Reply(steps=steps))
    assert t.text == "€ € b !"
    times = [c.t_s for c in t.visible()]
    assert len(times) == 4
    assert times[1] == times[2], "two events of one read arrive together"
    assert d.outcome(t).ok


@pytest.mark.parametrize("status", [400, 429, 503])
def test_status_codes_are_kept(status):
    reply = Reply(
        steps=(Step(0, b'{"error": "busy"}'),), status=status, content_type="application/json"
    )
    t = ask(reply)
    assert t.status_code == status
    assert d.outcome(t).reason == f"HTTP {status}"
    assert "busy" in t.error


def test_json_instead_of_a_stream():
    t = ask(Reply(steps=(Step(0, b'{"choices": []}'),), content_type="application/json"))
    assert "JSON instead of a stream" in t.error


def test_garbage_is_a_failure():
    t = ask(Reply(steps=(Step(0, b"\x00\xff<html>\n\n" * 3),), content_type="text/html"))
    assert "no event in" in t.error
    assert not d.outcome(t).ok


@pytest.mark.parametrize(
    "reply",
    [
        Reply(head_after_s=None),
        Reply(end="hang"),
        Reply(steps=(event(payload("a")),), end="hang"),
    ],
    ids=["no answer", "no event", "silent in the middle"],
)
def test_a_server_that_falls_silent_is_bounded(reply):
    start = time.perf_counter()
    t = ask(reply, timeout_s=0.3)
    assert time.perf_counter() - start < 30
    assert t.error == "timed out after 0.3 s"
    assert t.closed_s - t.sent_s > 0.25
    assert not d.outcome(t).ok


def test_a_connection_left_open_after_done_ends_soon(monkeypatch):
    monkeypatch.setattr(stream, "CLOSE_GRACE_S", 0.1)
    t = ask(Reply(steps=(event(payload("a", finish="stop")), event("[DONE]")), end="hang"))
    assert d.outcome(t) == d.Outcome(True, "ok")
    assert t.closed_s - t.sent_s < 15, "not the time-out of 20 s"


def test_refused_connection_is_a_failed_request():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    t = send_one(ASK, base_url=f"http://127.0.0.1:{port}")
    assert "cannot connect" in t.error
    assert t.status_code is None and t.chunks == ()
    assert summarize([t]).verdict == "no data"


def test_no_usage_asked_no_tokens_known():
    request = Request("x", max_tokens=3, usage="none")
    t = ask(Reply(speech=Speech(ttft_s=0, gap_s=0.002)), request=request)
    assert t.usage is None
    assert d.output_tokens(t) is None
    assert d.outcome(t).ok


def test_one_token_reply():
    t = ask(Reply(speech=Speech(ttft_s=0.01)), request=Request("x", max_tokens=1))
    s = summarize([t])
    assert s.ttft_s.count == 1
    assert (s.tpot_s.count, s.tpot_s.undefined, s.itl_s.count) == (0, 1, 0)


async def test_works_where_a_loop_already_runs():
    with MockServer() as server:
        t = send_one(ASK, base_url=server.base_url)
        assert asyncio.get_running_loop().is_running()
    assert t.text == " t0 t1 t2 t3"


def test_api_key_comes_from_the_environment_and_stays_out_of_the_timeline(monkeypatch):
    monkeypatch.setenv("TURBO_LAB_API_KEY", "sk-secret")
    target = Target("http://127.0.0.1:1")
    assert target.request_headers("a")["Authorization"] == "Bearer sk-secret"
    t = ask(Reply(status=401, steps=(Step(0, b"denied"),)))
    assert "sk-secret" not in str(t.to_dict())


@pytest.mark.parametrize("bad", ["localhost:8000", "ftp://x", ""])
def test_base_url_needs_a_scheme(bad):
    with pytest.raises(UsageError, match="http://"):
        send_one(ASK, base_url=bad)
