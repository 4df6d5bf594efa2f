"""The proxy before two mock servers, with either of them failing at any point."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.engines.kv_connector.args import reroute
from turbo_lab.parallel.disagg_handover import Handover, ReplyWatch, Waits
from turbo_lab.parallel.disagg_proxy import DisaggProxy

OFFER = {"do_remote_prefill": True, "remote_host": "127.0.0.1", "remote_port": 9,
         "remote_prefix": "ab", "remote_tokens": 128,
         "remote_prefill_cached_tokens": 7}  # fmt: skip
EVENTS = [b'data: {"choices": [{"text": "a", "finish_reason": null}]}\n\n',
          b'data: {"choices": [{"text": "b", "finish_reason": "length"}]}\n\n',
          b"data: [DONE]\n\n"]  # fmt: skip
BODY = {"model": "lab", "prompt": "p", "max_tokens": 9, "stream": True, "min_tokens": 9,
        "stream_options": {"include_usage": True}, "logprobs": 2}  # fmt: skip
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Mock:
    """A server whose completions one handler answers; it notes every body."""

    def __init__(self, handler: Handler) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.handler = handler
        app = web.Application()
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_get("/v1/models", self._models)
        self.server = TestServer(app)

    async def _complete(self, asked: web.Request) -> web.StreamResponse:
        self.bodies.append(await asked.json())
        return await self.handler(asked)

    async def _models(self, asked: web.Request) -> web.Response:
        return web.json_response({"data": ["consumer"]})

    @property
    def url(self) -> str:
        return str(self.server.make_url("")).rstrip("/")


async def prefilled(asked: web.Request) -> web.Response:
    return web.json_response({"choices": [{"text": "a"}], "kv_transfer_params": OFFER})


async def keeps_nothing(asked: web.Request) -> web.Response:
    return web.json_response({"choices": []})


async def fails(asked: web.Request) -> web.Response:
    return web.Response(status=500, text="broken")


async def refuses(asked: web.Request) -> web.Response:
    return web.json_response({"error": {"message": "too long"}}, status=400)


async def dies(asked: web.Request) -> web.Response:
    asked.transport.close()
    return web.Response()


async def silent(asked: web.Request) -> web.Response:
    import asyncio

    await asyncio.sleep(30)
    return web.Response()


async def streams(asked: web.Request, *, die_after: int | None = None) -> web.StreamResponse:
    reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await reply.prepare(asked)
    for event in EVENTS[:die_after]:
        await reply.write(event)
    if die_after is not None:
        asked.transport.close()
    return reply


async def streams_and_dies(asked: web.Request) -> web.StreamResponse:
    return await streams(asked, die_after=1)


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Mock, Mock]]:
    producer, consumer = Mock(prefilled), Mock(streams)
    async with producer.server, consumer.server:
        yield producer, consumer


async def ask(
    pair: tuple[Mock, Mock], *, body: Any = BODY, waits: Waits | None = None, **options: Any
) -> tuple[int, bytes, Handover]:
    producer, consumer = pair
    proxy = DisaggProxy(producer.url, consumer.url, waits=waits, **options)
    import asyncio

    await asyncio.to_thread(proxy.start)
    try:
        async with aiohttp.ClientSession() as session:
            url = f"{proxy.base_url}/v1/completions"
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            async with session.post(url, data=data, headers={"X-Request-Id": "r1"}) as answer:
                return answer.status, await answer.read(), proxy.records[-1]
    finally:
        await asyncio.to_thread(proxy.stop)


def message(told: bytes) -> str:
    error = json.loads(told)["error"]
    assert error["type"] == "disaggregation_error" and isinstance(error["code"], int)
    return error["message"]


async def test_a_request_is_prefilled_handed_over_and_streamed_through(pair: Any) -> None:
    status, told, record = await ask(
        pair, reroute=lambda offer: reroute(offer, ("10.0.0.1", 7), wire="int8")
    )
    assert (status, told) == (200, b"".join(EVENTS))
    (prefill,), (decode,) = pair[0].bodies, pair[1].bodies
    assert prefill["max_tokens"] == 1 and prefill["stream"] is False
    assert prefill["kv_transfer_params"]["do_remote_decode"] is True
    assert not {"stream_options", "logprobs"} & prefill.keys() and prefill["min_tokens"] == 0
    changed = {"remote_host": "10.0.0.1", "remote_port": 7, "wire": "int8"}
    offered = {k: v for k, v in OFFER.items() if k != "remote_prefill_cached_tokens"}
    assert decode == {**BODY, "kv_transfer_params": {**offered, **changed}}
    assert (record.request_id, record.offered_tokens, record.status) == ("r1", 128, 200)
    assert record.reason is None and record.error is None and record.prefill_s is not None


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (keeps_nothing, "keeps nothing"),
        (fails, "answered 500"),
        (dies, "the prefilling server failed"),
        (silent, "too slow"),
    ],
)
async def test_a_producer_that_fails_costs_time_not_the_answer(
    pair: Any, handler: Handler, reason: str
) -> None:
    pair[0].handler = handler
    waits = Waits(prefill_s=0.2) if handler is silent else None
    status, told, record = await ask(pair, waits=waits)
    assert (status, told) == (200, b"".join(EVENTS))
    assert reason in (record.reason or "") and record.offered_tokens == 0
    assert pair[1].bodies == [BODY]


async def test_a_producer_that_is_gone_is_passed_over(pair: Any) -> None:
    await pair[0].server.close()
    proxy = DisaggProxy("http://127.0.0.1:1", pair[1].url)
    proxy.start()
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{proxy.base_url}/v1/completions", json=BODY) as answer,
        ):
            assert (answer.status, await answer.read()) == (200, b"".join(EVENTS))
    finally:
        proxy.stop()
        proxy.stop()
    assert "the prefilling server failed" in (proxy.records[0].reason or "")


async def test_a_wrong_request_is_told_as_the_producer_tells_it(pair: Any) -> None:
    pair[0].handler = refuses
    status, told, record = await ask(pair)
    assert (status, json.loads(told)["error"]["message"]) == (400, "too long")
    assert record.error and not pair[1].bodies
    status, told, _ = await ask(pair, body=b"[1]")
    assert status == 400 and "no JSON object" in message(told)


async def test_a_consumer_that_dies_before_its_reply_is_a_502(pair: Any) -> None:
    pair[1].handler = dies
    status, told, record = await ask(pair)
    assert status == 502 and "the decoding server failed" in message(told)
    assert record.error == message(told) and record.status == 502


async def test_a_consumer_that_says_nothing_is_a_504(pair: Any) -> None:
    pair[1].handler = silent
    status, told, _ = await ask(pair, waits=Waits(silence_s=0.2))
    assert status == 504 and message(told)


async def test_a_consumer_that_dies_in_its_reply_leaves_an_error_event(pair: Any) -> None:
    pair[1].handler = streams_and_dies
    status, told, record = await ask(pair)
    assert status == 200 and told.startswith(EVENTS[0]) and b"[DONE]" not in told
    last = told.removeprefix(EVENTS[0]).removeprefix(b"data: ").strip()
    assert "the decoding server failed" in message(last)
    assert record.error == message(last)


async def stops_early(asked: web.Request) -> web.StreamResponse:
    reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await reply.prepare(asked)
    await reply.write(EVENTS[0])
    await reply.write(EVENTS[2])
    return reply


async def test_a_consumer_that_is_stopped_in_good_order_is_an_error_too(pair: Any) -> None:
    """vLLM ends its streams with [DONE] when it is shut down; the reply is not whole for that."""
    pair[1].handler = stops_early
    status, told, record = await ask(pair)
    assert status == 200 and told.startswith(EVENTS[0]) and b"[DONE]" not in told
    last = told.removeprefix(EVENTS[0]).removeprefix(b"data: ").strip()
    assert "ended before it was finished" in message(last) == record.error


@given(st.lists(st.integers(1, 60), max_size=8))
def test_a_finish_reason_is_seen_however_the_network_cuts_it(cuts: list[int]) -> None:
    whole, watch, passed, at = b"".join(EVENTS), ReplyWatch(), b"", 0
    for size in [*cuts, len(whole)]:
        passed += watch.take(whole[at : at + size])
        at += size
    assert watch.finished and passed == whole
    early = ReplyWatch()
    assert early.take(EVENTS[0] + EVENTS[2]) == EVENTS[0] and not early.finished


async def test_other_paths_are_the_consumers(pair: Any) -> None:
    proxy = DisaggProxy(pair[0].url, pair[1].url).start()
    try:
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{proxy.base_url}/v1/models") as answer:
                assert await answer.json() == {"data": ["consumer"]}
            await pair[1].server.close()
            async with session.get(f"{proxy.base_url}/v1/models") as answer:
                assert answer.status == 502 and "does not answer" in message(await answer.read())
    finally:
        proxy.stop()


async def test_the_control_leaves_the_producer_out(pair: Any) -> None:
    _, told, record = await ask(pair, hand_over=False)
    assert told == b"".join(EVENTS) and not pair[0].bodies and pair[1].bodies == [BODY]
    assert record.reason == "hand-over is switched off"
