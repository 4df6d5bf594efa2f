"""A proxy before two servers: prefill at one, hand over, decode at the other, stream to the client.

Each request goes to the producer with ``max_tokens=1`` first; its answer says where the KV blocks
lie, and the request itself then goes to the consumer with that. A producer that fails costs time
and nothing else: the consumer computes the prompt itself, and the reason stands in the record. A
consumer that fails ends in a JSON error with a status, or in an error event once the reply has
begun. Every wait has a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import aiohttp
from aiohttp import web

from turbo_lab.core.errors import EngineError
from turbo_lab.engines.kv_connector.args import keep
from turbo_lab.parallel.disagg_handover import (
    ERRORS,
    ClientLeftError,
    Handover,
    Refused,
    ReplyWatch,
    Waits,
    error_body,
    error_response,
    noted,
    words,
)

PATHS = ("/v1/completions", "/v1/chat/completions")
ONE_TOKEN = {"max_tokens": 1, "max_completion_tokens": 1, "min_tokens": 0, "stream": False, "n": 1}
NOT_FOR_PREFILL = ("stream_options", "logprobs", "top_logprobs", "max_completion_tokens")
SERVER_FAULT = 500
Reroute = Callable[[dict[str, Any]], dict[str, Any]]


class DisaggProxy:
    """Runs in a thread of this process. Use as a context manager, or ``start`` and ``stop``.

    ``reroute`` changes a producer's offer before the consumer sees it: another address (a shaped
    link), another format. With ``hand_over=False`` the producer is left out: the control.
    """

    def __init__(
        self, producer: str, consumer: str, *, reroute: Reroute = dict, waits: Waits | None = None,
        hand_over: bool = True,
    ) -> None:  # fmt: skip
        self.producer, self.consumer = producer.rstrip("/"), consumer.rstrip("/")
        self.reroute, self.hand_over = reroute, hand_over
        self.waits = waits or Waits()
        self.records: list[Handover] = []
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None
        self._port: int | None = None

    @property
    def base_url(self) -> str:
        """Root of the proxy's address. Raises EngineError before ``start``."""
        if self._port is None:
            raise EngineError("the proxy is not running; call start() first")
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> DisaggProxy:
        """Listen on a free loopback port; returns when it does. Raises EngineError."""
        ready, failed = threading.Event(), []

        def work() -> None:
            try:
                asyncio.run(self._run(ready))
            except OSError as error:
                failed.append(error)
                ready.set()

        self._thread = threading.Thread(target=work, name="disagg-proxy", daemon=True)
        self._thread.start()
        ready.wait(30.0)
        if failed or self._port is None:
            raise EngineError(f"the proxy does not listen: {failed or 'no answer in 30 s'}")
        return self

    def stop(self) -> None:
        """Cut what runs and stop listening. Safe to call twice."""
        loop, stop, thread = self._loop, self._stop, self._thread
        if loop is not None and stop is not None and thread is not None and thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(stop.set)
            thread.join(10.0)
        self._port = None

    def __enter__(self) -> DisaggProxy:
        """Start."""
        return self.start()

    def __exit__(self, *failure: object) -> None:
        """Stop."""
        self.stop()

    async def _run(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=self.waits.connect_s, sock_read=self.waits.silence_s
        )
        app = web.Application(client_max_size=64 * 2**20)
        for path in PATHS:
            app.router.add_post(path, self._complete)
        app.router.add_get("/{path:.*}", self._inform)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=limits, connector=connector) as self._session:
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self._port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
            ready.set()
            await self._stop.wait()
            await runner.cleanup()

    async def _inform(self, asked: web.Request) -> web.StreamResponse:
        """Models, health and metrics are the consumer's."""
        try:
            async with self._session.get(self.consumer + asked.path_qs) as answer:
                return web.Response(
                    status=answer.status, body=await answer.read(), headers=_kind(answer)
                )
        except ERRORS as error:
            return error_response(502, f"the decoding server does not answer: {words(error)}")

    async def _complete(self, asked: web.Request) -> web.StreamResponse:
        record = Handover(asked.headers.get("X-Request-Id") or f"proxy-{time.monotonic_ns()}",
                          time.perf_counter())  # fmt: skip
        self.records.append(record)
        try:
            answer = await self._both(asked, record)
            record.status = record.status or answer.status
            return answer
        except Refused as refused:
            record.status, record.error = refused.status, "refused by the prefilling server"
            return web.Response(
                status=refused.status, body=refused.body, content_type="application/json"
            )
        finally:
            record.ended_s = time.perf_counter()

    async def _both(self, asked: web.Request, record: Handover) -> web.StreamResponse:
        try:
            body = await asked.json()
            if not isinstance(body, dict):
                raise ValueError("an object is wanted")
        except ValueError as error:
            record.error = f"the body is no JSON object: {error}"
            return error_response(400, record.error)
        offer = None
        if self.hand_over:
            with noted(record):
                offer = await self._bounded(self._prefill(asked, body, record))
        else:
            record.reason = "hand-over is switched off"
        if offer:
            body = {**body, "kv_transfer_params": self.reroute(offer)}
            record.offered_tokens = int(offer.get("remote_tokens", 0))
        return await self._decode(asked, body, record)

    async def _bounded(self, step: Coroutine[Any, Any, Any]) -> Any:
        async with asyncio.timeout(self.waits.prefill_s):
            return await step

    async def _prefill(
        self, asked: web.Request, body: Mapping[str, Any], record: Handover
    ) -> dict[str, Any] | None:
        """The producer's offer; None, with the reason in the record, when there is none."""
        short = {k: v for k, v in {**body, **ONE_TOKEN}.items() if k not in NOT_FOR_PREFILL}
        short["kv_transfer_params"] = keep()
        started_s = time.perf_counter()
        headers = {**_passed(asked), "X-Request-Id": f"{record.request_id}-prefill"}
        async with self._session.post(
            self.producer + asked.path, json=short, headers=headers
        ) as answer:
            told = await answer.read()
            record.prefill_s = time.perf_counter() - started_s
            if 400 <= answer.status < SERVER_FAULT:
                raise Refused(answer.status, told)
            if answer.status != 200:
                record.reason = f"the prefilling server answered {answer.status}"
                return None
            offer = json.loads(told).get("kv_transfer_params")
            if not offer:
                record.reason = "the prefilling server keeps nothing (no whole block?)"
            return offer

    async def _decode(
        self, asked: web.Request, body: Mapping[str, Any], record: Handover
    ) -> web.StreamResponse:
        headers = {**_passed(asked), "X-Request-Id": record.request_id}
        reply: web.StreamResponse | None = None
        try:
            async with self._session.post(
                self.consumer + asked.path, json=body, headers=headers
            ) as answer:
                if "text/event-stream" not in answer.headers.get("Content-Type", ""):
                    told = await answer.read()  # whole, so that a death on the way is a status
                    return web.Response(status=answer.status, body=told, headers=_kind(answer))
                reply = web.StreamResponse(status=answer.status, headers=_kind(answer))
                await reply.prepare(asked)
                watch = ReplyWatch()
                async for piece in answer.content.iter_any():
                    record.first_byte_s = record.first_byte_s or time.perf_counter()
                    await _hand_on(reply, watch.take(piece))
                if not watch.finished:
                    raise aiohttp.ClientPayloadError("the reply ended before it was finished")
        except ClientLeftError:
            record.error = "the client left"
        except ERRORS as error:
            late = isinstance(error, TimeoutError)
            record.error = f"the decoding server failed: {words(error)}"
            if reply is None:
                return error_response(504 if late else 502, record.error)
            with contextlib.suppress(ClientLeftError):
                told = json.dumps(error_body(504 if late else 502, record.error))
                await _hand_on(reply, f"data: {told}\n\n".encode())
        if reply is None:
            return error_response(502, record.error or "no answer")
        with contextlib.suppress(ConnectionError):
            await reply.write_eof()
        return reply


async def _hand_on(reply: web.StreamResponse, piece: bytes) -> None:
    try:
        if piece:
            await reply.write(piece)
    except (ConnectionError, aiohttp.ClientConnectionError) as error:
        raise ClientLeftError from error


def _passed(asked: web.Request) -> dict[str, str]:
    """Headers that go on to the servers."""
    return {k: v for k, v in asked.headers.items() if k in ("Authorization", "Accept")}


def _kind(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {"Content-Type": answer.headers.get("Content-Type", "application/json")}
