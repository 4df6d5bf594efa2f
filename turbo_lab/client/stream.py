"""One request over one connection: what arrived, and when, on the clock ``time.perf_counter``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import aiohttp

from turbo_lab.client.reply import ReplyReader
from turbo_lab.client.sse import SseParser
from turbo_lab.client.stamps import SocketStamps
from turbo_lab.client.sync import run_sync
from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.workload.request import Request

API_KEY_VARIABLE = "TURBO_LAB_API_KEY"
ERROR_BODY_CHARS = 500
CLOSE_GRACE_S = 5.0  # How long a stream may stay open after [DONE] before we close it.
KEEPALIVE_S = 4.0  # Below uvicorn's 5 s, so that no pooled connection dies as it is used.


@dataclass(frozen=True)
class Target:
    """A server and how long to wait for it.

    ``base_url`` is its root, with or without ``/v1``. The API key is read from the environment
    variable that ``api_key_env`` names, never from an argument.
    """

    base_url: str
    timeout_s: float = 600.0
    connect_timeout_s: float = 30.0
    headers: Mapping[str, str] = field(default_factory=dict)
    api_key_env: str = API_KEY_VARIABLE

    def __post_init__(self) -> None:
        """Refuse a URL without a scheme and times that are not positive."""
        if not self.base_url.startswith(("http://", "https://")):
            raise UsageError(
                f"base_url is {self.base_url!r}; it must begin with http:// or https://"
            )
        if not self.timeout_s > 0 or not self.connect_timeout_s > 0:
            raise UsageError("timeout_s and connect_timeout_s must be above 0")

    def url(self, path: str) -> str:
        """The full URL of a path like ``/v1/completions``."""
        return self.base_url.rstrip("/").removesuffix("/v1") + path

    def request_headers(self, request_id: str | None) -> dict[str, str]:
        """Headers of one request; the key is added here and kept nowhere."""
        out = {"Accept": "text/event-stream", "Content-Type": "application/json", **self.headers}
        if key := os.environ.get(self.api_key_env):
            out["Authorization"] = f"Bearer {key}"
        if request_id:
            out["X-Request-Id"] = request_id
        return out


@dataclass
class _Marks:
    """What is learned while a request runs; becomes one Timeline."""

    sent_s: float | None = None
    connected_s: float | None = None
    reused: bool | None = None
    status: int | None = None
    closed_s: float | None = None
    error: str | None = None
    reader: ReplyReader = field(default_factory=ReplyReader)


def _trace() -> aiohttp.TraceConfig:
    """Notes when a connection was ready, and whether it came from the pool."""
    trace = aiohttp.TraceConfig()

    def note(*, reused: bool) -> Any:
        async def on_event(_session: Any, context: SimpleNamespace, _params: Any) -> None:
            marks: _Marks = context.trace_request_ctx
            marks.connected_s, marks.reused = time.perf_counter(), reused

        return on_event

    trace.on_connection_create_end.append(note(reused=False))
    trace.on_connection_reuseconn.append(note(reused=True))
    return trace


@dataclass(frozen=True)
class Channel:
    """An open pool of connections to one target."""

    session: aiohttp.ClientSession
    stamps: SocketStamps
    target: Target


@contextlib.asynccontextmanager
async def open_channel(target: Target) -> AsyncIterator[Channel]:
    """A pool of connections without a limit: the client must never cap the load silently."""
    stamps = SocketStamps()
    connector = aiohttp.TCPConnector(
        limit=0, keepalive_timeout=KEEPALIVE_S, socket_factory=stamps.make
    )
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=target.connect_timeout_s)
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        trace_configs=[_trace()],
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        yield Channel(session, stamps, target)


async def stream_one(
    request: Request, *, channel: Channel, scheduled_s: float | None = None
) -> Timeline:
    """Send one request and note every event. Never raises for what the server does.

    A refusal, an error, a time-out or a cut stream becomes ``error`` in the Timeline.
    """
    target = channel.target
    marks = _Marks()
    body = json.dumps(request.body()).encode()
    headers = target.request_headers(request.request_id)
    limit = asyncio.timeout(target.timeout_s)
    try:
        async with limit:
            marks.sent_s = time.perf_counter()
            async with channel.session.post(
                target.url(request.path), data=body, headers=headers, trace_request_ctx=marks
            ) as response:
                marks.status = response.status
                await _read(response, marks, limit, channel.stamps)
    except TimeoutError:
        if not limit.expired():
            marks.error = f"no connection within {target.connect_timeout_s:g} s"
        elif not marks.reader.saw_done:
            marks.error = f"timed out after {target.timeout_s:g} s"
    except aiohttp.ClientConnectorError as error:
        marks.error = f"cannot connect to {target.base_url}: {error.os_error}"
    except (aiohttp.ClientError, EngineError, OSError, ValueError) as error:
        marks.error = f"the connection broke: {type(error).__name__} {error}".rstrip()
    marks.closed_s = time.perf_counter()
    return _timeline(request, marks, scheduled_s)


async def _read(
    response: aiohttp.ClientResponse, marks: _Marks, limit: asyncio.Timeout, stamps: SocketStamps
) -> None:
    if response.status != 200 or response.content_type == "application/json":
        marks.error = _refusal(response, await response.content.read(64 * 1024))
        return
    parser, reader, size_bytes, in_grace = SseParser(), marks.reader, 0, False
    arrived_s = stamps.clock(response)
    async for block in response.content.iter_any():
        now = arrived_s()
        size_bytes += len(block)
        for name, data in parser.feed(block):
            reader.take(name, data, t_s=now)
        if reader.saw_done and not in_grace:
            in_grace = True
            limit.reschedule(asyncio.get_running_loop().time() + CLOSE_GRACE_S)
    for name, data in parser.close():
        reader.take(name, data, t_s=time.perf_counter())
    if not reader.chunks and size_bytes:
        marks.error = f"no event in {size_bytes} bytes of {response.content_type}"


def _refusal(response: aiohttp.ClientResponse, body: bytes) -> str:
    text = body.decode(errors="replace").strip()[:ERROR_BODY_CHARS]
    if response.status != 200:
        return f"HTTP {response.status}: {text or response.reason or 'no reason given'}"
    return f"the server answered JSON instead of a stream: {text}"


def _timeline(request: Request, marks: _Marks, scheduled_s: float | None) -> Timeline:
    reader = marks.reader
    return Timeline(
        scheduled_s=scheduled_s,
        sent_s=marks.sent_s,
        connected_s=marks.connected_s,
        status_code=marks.status,
        chunks=tuple(reader.chunks),
        finish_reason=reader.finish_reason,
        saw_done=reader.saw_done,
        usage=reader.usage,
        closed_s=marks.closed_s,
        error=marks.error or reader.error,
        request_id=request.request_id,
        connection_reused=marks.reused,
        text=reader.text,
        labels=request.labels,
    )


async def send_one_async(request: Request, *, target: Target) -> Timeline:
    """Send one request on a connection of its own."""
    async with open_channel(target) as channel:
        return await stream_one(request, channel=channel)


def send_one(request: Request, *, base_url: str, timeout_s: float = 600.0) -> Timeline:
    """Send one request and wait for the whole reply; its text is ``timeline.text``.

    Works in scripts and in Jupyter alike. A failure is in ``timeline.error``, not an exception.
    """
    target = Target(base_url, timeout_s=timeout_s)
    return run_sync(lambda: send_one_async(request, target=target))
