"""The little HTTP/1.1 that the mock server speaks: keep-alive, chunked bodies, cuts at will."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

MAX_HEAD_BYTES = 64 * 1024
Handler = Callable[["HttpConnection", str, str, Mapping[str, str], bytes], Awaitable[None]]


class HttpConnection(asyncio.Protocol):
    """One client connection. A transport write goes to the socket at once (no Nagle delay)."""

    def __init__(self, handler: Handler, registry: set[HttpConnection]) -> None:
        self._handler, self._registry = handler, registry
        self._buffer = b""
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self.received_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register, so that stopping the server can close this."""
        self._transport = transport  # type: ignore[assignment]
        self._registry.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client left: stop answering it."""
        self._registry.discard(self)
        if self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        """Cut the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Collect one request; pipelined ones wait for the answer before them."""
        self.received_s = time.perf_counter()
        self._buffer += data
        if self._task is None:
            self._begin()

    def _begin(self) -> None:
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            if len(self._buffer) > MAX_HEAD_BYTES:
                self.abort()
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {k.strip().lower(): v.strip() for k, _, v in (x.partition(":") for x in lines)}
        length = int(headers.get("content-length") or 0)
        if len(rest) < length:
            return
        body, self._buffer = rest[:length], rest[length:]
        method, _, target = first.partition(" ")
        path = target.partition(" ")[0].partition("?")[0]
        self._task = asyncio.ensure_future(self._handle(method, path, headers, body))

    async def _handle(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            try:
                await self._handler(self, method, path, headers, body)
            except (ValueError, KeyError, TypeError) as error:
                self.answer(400, str(error).encode())
        self._task = None
        if self._buffer and self._transport is not None and not self._transport.is_closing():
            self._begin()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def answer(self, status: int, body: bytes, *, content_type: str = "application/json") -> None:
        """A whole answer of known length."""
        head = f"{_status_line(status)}content-type: {content_type}\r\n"
        self._write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    def head(self, status: int, *, content_type: str) -> None:
        """Begin a chunked answer."""
        head = f"{_status_line(status)}content-type: {content_type}\r\n"
        self._write(f"{head}transfer-encoding: chunked\r\n\r\n".encode())

    def piece(self, data: bytes) -> None:
        """One HTTP chunk."""
        if data:
            self._write(b"%x\r\n%b\r\n" % (len(data), data))

    def finish(self, *, cut: bool = False) -> None:
        """End the chunked answer, or cut the connection in the middle of it."""
        if not cut:
            self._write(b"0\r\n\r\n")
        elif self._transport is not None:
            self._transport.close()


def _status_line(status: int) -> str:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    return f"HTTP/1.1 {status} {phrase}\r\n"
