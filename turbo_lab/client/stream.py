"""One request over one connection: what arrived, and when, on the clock ``time.perf_counter``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from turbo_lab.client.http_reply import HttpReply
from turbo_lab.client.reply import ReplyReader
from turbo_lab.client.sse import SseParser
from turbo_lab.client.sync import run_sync
from turbo_lab.client.wire import DialError, Pool, request_head
from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.workload.request import Request

API_KEY_VARIABLE = "TURBO_LAB_API_KEY"
ERROR_BODY_CHARS = 500
CLOSE_GRACE_S = 5.0  # How long a stream may stay open after [DONE] before we close it.
REFUSAL_BYTES = 64 * 1024  # Of an answer that is no stream.


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
        """Refuse what is no address and times that are not positive."""
        if reason := _no_address(self.base_url):
            raise UsageError(f"base_url is {self.base_url!r}; {reason}")
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


def _no_address(url: str) -> str | None:
    """Why no server can be at this address; None where one could be."""
    if not url.startswith(("http://", "https://")):
        return "it must begin with http:// or https://"
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and parts.port != 0 and not any(c <= " " for c in url)
    except ValueError as error:  # A port that is no number or too large, a bracket left open.
        return f"{error}. Give http://HOST:PORT, PORT from 1 to 65535"
    return None if good else "it has no host, port 0 or a blank in it. Give http://HOST:PORT"


@dataclass
class _Marks:
    """What is learned while a request runs; becomes one Timeline."""

    sent_s: float | None = None
    connected_s: float | None = None
    reused: bool | None = None
    status: int | None = None
    closed_s: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class Channel:
    """An open pool of connections to one target."""

    pool: Pool
    target: Target


@contextlib.asynccontextmanager
async def open_channel(target: Target) -> AsyncIterator[Channel]:
    """A pool of connections without a limit: the client must never cap the load silently."""
    pool = Pool(target.base_url, connect_timeout_s=target.connect_timeout_s)
    try:
        yield Channel(pool, target)
    finally:
        await pool.close()


class _Body:
    """Takes the blocks of one response as they arrive: events of a stream, or a refusal."""

    def __init__(self, limit: asyncio.Timeout) -> None:
        self.reader = ReplyReader()
        self.refusal: bytes | None = None  # Filled when the answer is no stream.
        self._limit, self._parser = limit, SseParser()
        self._size_bytes, self._in_grace = 0, False

    def take(self, reply: HttpReply, block: bytes, arrived_s: float) -> bool:
        """Account for one block; True when nothing more is wanted."""
        if not self._size_bytes and is_refusal(reply):
            self.refusal = b""
        self._size_bytes += len(block)
        if self.refusal is not None:
            self.refusal += block
            return len(self.refusal) >= REFUSAL_BYTES
        reader = self.reader
        for name, data in self._parser.feed(block):
            reader.take(name, data, t_s=arrived_s)
        if reader.saw_done and not self._in_grace:
            self._in_grace = True
            self._limit.reschedule(asyncio.get_running_loop().time() + CLOSE_GRACE_S)
        return False

    def close(self, reply: HttpReply) -> str | None:
        """The response is complete: its last event, and what was wrong with it in words."""
        if is_refusal(reply):
            return _refusal(reply, self.refusal or b"")
        for name, data in self._parser.close():
            self.reader.take(name, data, t_s=time.perf_counter())
        if not self.reader.chunks and self._size_bytes:
            packed = reply.headers.get("content-encoding", "identity")
            how = "" if packed == "identity" else f", compressed with {packed} though unasked"
            kind = reply.content_type or "no content type"
            return f"no event in {self._size_bytes} bytes of {kind}{how}"
        return None


async def stream_one(
    request: Request, *, channel: Channel, scheduled_s: float | None = None
) -> Timeline:
    """Send one request and note every event. Never raises for what the server does.

    A refusal, an error, a time-out or a cut stream becomes ``error`` in the Timeline.
    """
    target, marks = channel.target, _Marks()
    limit = asyncio.timeout(target.timeout_s)
    body = _Body(limit)
    try:
        payload = _payload(request, target)
        async with limit:
            marks.sent_s = time.perf_counter()
            await _exchange(payload, body, marks, channel.pool)
    except TimeoutError as error:
        if error.errno is not None:  # The system's, in the middle of an answer.
            marks.error = f"the connection broke: {error}"
        elif not limit.expired():
            marks.error = f"no connection within {target.connect_timeout_s:g} s"
        elif not body.reader.saw_done:
            marks.error = f"timed out after {target.timeout_s:g} s"
    except DialError as error:
        marks.error = f"cannot connect to {target.base_url}: {error}"
    except EngineError as error:
        marks.error = f"the connection broke: {error}"
    except (OSError, ValueError) as error:
        marks.error = f"the connection broke: {type(error).__name__} {error}".rstrip()
    marks.closed_s = time.perf_counter()
    return _timeline(request, marks, body.reader, scheduled_s)


def _payload(request: Request, target: Target) -> bytes:
    body = json.dumps(request.body()).encode()
    headers = target.request_headers(request.request_id)
    return request_head(target.url(request.path), headers, body_bytes=len(body)) + body


async def _exchange(payload: bytes, body: _Body, marks: _Marks, pool: Pool) -> None:
    connection, marks.reused = await pool.take()
    marks.connected_s = time.perf_counter()
    reply = HttpReply()
    try:
        await connection.ask(payload, reply, body.take)
    finally:
        marks.status = reply.status
    marks.error = body.close(reply)
    pool.give_back(connection, reply)


def is_refusal(reply: HttpReply) -> bool:
    """No stream of events: another status than 200, or JSON as a whole."""
    return reply.status != 200 or reply.content_type == "application/json"


def _refusal(reply: HttpReply, body: bytes) -> str:
    text = body.decode(errors="replace").strip()[:ERROR_BODY_CHARS]
    if reply.status != 200:
        where = f" to {reply.headers['location']}" if "location" in reply.headers else ""
        return f"HTTP {reply.status}{where}: {text or reply.reason or 'no reason given'}"
    return f"the server answered JSON instead of a stream: {text}"


def _timeline(
    request: Request, marks: _Marks, reader: ReplyReader, scheduled_s: float | None
) -> Timeline:
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
