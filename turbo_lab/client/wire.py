"""Connections to one server: dialled, reused, and read with a time stamp on every arrival.

A small HTTP/1.1 client on asyncio's transports. ``buffer_updated`` runs in the very step of the
event loop that took the bytes out of the kernel; the stamp is its first act. No task is woken and
nothing is queued between. ``benchmarks/client_rate.py`` shows what this is worth.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from turbo_lab.client.http_reply import HttpReply
from turbo_lab.core.errors import EngineError

KEEPALIVE_S = 4.0  # Below uvicorn's 5 s, so that no pooled connection dies as it is used.
ADDRESSES_S = 10.0  # How long resolved addresses are kept.
BUFFER_BYTES = 64 * 1024  # Of one read; all connections of a pool share it.
EYEBALLS_S = 0.25  # Head start of the preferred address family (RFC 8305).

OnBlock = Callable[[HttpReply, bytes, float], bool]


class DialError(EngineError):
    """No connection could be opened; the message is the system's reason."""


class Connection(asyncio.BufferedProtocol):
    """One connection; one request at a time.

    ``buffer`` may be shared: what was read is copied out of it before the next read.
    """

    def __init__(self, registry: set[Connection], buffer: memoryview) -> None:
        self._registry, self._buffer = registry, buffer
        self._transport: asyncio.Transport | None = None
        self._reply: HttpReply | None = None
        self._on_block: OnBlock | None = None
        self._ended: asyncio.Future[None] | None = None
        self.idle_since_s = 0.0

    @property
    def usable(self) -> bool:
        """Open, and no request on its way."""
        return (
            self._transport is not None and not self._transport.is_closing() and self._reply is None
        )

    async def ask(self, request: bytes, reply: HttpReply, on_block: OnBlock) -> None:
        """Send one request; every body block goes to ``on_block(reply, block, arrived_s)``.

        ``on_block`` returns True to end here; the connection is then closed. Returns when the
        ``reply`` is complete. Raises EngineError or OSError when the connection breaks; a
        cancelled call closes it.
        """
        assert self._transport is not None
        if self._transport.is_closing():  # Its end was told already and will not be told again.
            raise EngineError("the server closed the connection at once")
        self._reply, self._on_block = reply, on_block
        self._ended = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            await self._ended
        except BaseException:
            self.abort()
            raise
        finally:
            self._reply = self._on_block = self._ended = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register, so that closing the pool finds it."""
        self._transport = transport  # type: ignore[assignment]
        self._registry.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next read goes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Stamp, then read."""
        arrived_s = time.perf_counter()
        reply, on_block = self._reply, self._on_block
        if reply is None or on_block is None or reply.done:
            self.abort()  # Bytes that nobody asked for.
            return
        try:
            for block in reply.feed(bytes(self._buffer[:nbytes])):
                if on_block(reply, block, arrived_s):
                    reply.done, reply.reusable = True, False
                    break
        except Exception as error:
            self._finish(error)
            return
        if reply.done:
            self._finish(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of a response without a length, or a break."""
        self._registry.discard(self)
        if self._reply is None or self._reply.done:
            return
        if exc is None:
            try:
                self._reply.eof()
            except EngineError as error:
                exc = error
        self._finish(exc)

    def _finish(self, error: Exception | None) -> None:
        ended = self._ended
        if ended is None or ended.done():
            return
        if error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    def abort(self) -> None:
        """Close now, without waiting for anything."""
        if self._transport is not None:
            self._transport.abort()


class Pool:
    """All connections to one server, without a limit: the client never caps the load silently."""

    def __init__(self, base_url: str, *, connect_timeout_s: float) -> None:
        parts = urlsplit(base_url)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        self._timeout_s = connect_timeout_s
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._open: set[Connection] = set()
        self._idle: list[Connection] = []
        self._addresses: list[str] = []
        self._resolved_s = float("-inf")
        self._lock = asyncio.Lock()
        self._turn = itertools.count()

    async def take(self) -> tuple[Connection, bool]:
        """A connection ready for a request, and whether it was used before.

        Raises DialError, or TimeoutError after ``connect_timeout_s``.
        """
        while self._idle:
            connection = self._idle.pop()
            fresh = time.perf_counter() - connection.idle_since_s < KEEPALIVE_S
            if connection.usable and fresh:
                return connection, True
            connection.abort()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._dial(), False
        except OSError as error:
            if isinstance(error, TimeoutError) and error.errno is None:
                raise  # Our own limit, not the system's.
            raise DialError(str(error)) from error

    def give_back(self, connection: Connection, reply: HttpReply) -> None:
        """Keep it for the next request, or close it where the reply does not allow that."""
        if reply.reusable and connection.usable:
            connection.idle_since_s = time.perf_counter()
            self._idle.append(connection)
        else:
            connection.abort()

    async def close(self) -> None:
        """Close every connection."""
        for connection in list(self._open):
            connection.abort()
        await asyncio.sleep(0)

    async def _dial(self) -> Connection:
        addresses = await self._resolve()
        families = {":" in address for address in addresses}
        if len(families) > 1:  # IPv4 and IPv6: whichever answers first is used from then on.
            connection = await self._connect(self._host, happy_eyeballs_delay=EYEBALLS_S)
            assert connection._transport is not None
            six = ":" in connection._transport.get_extra_info("peername")[0]
            self._addresses = [a for a in self._addresses if (":" in a) == six]
            return connection
        first = next(self._turn) % len(addresses)
        problem: OSError | None = None
        for address in addresses[first:] + addresses[:first]:  # Several servers share the load.
            try:
                return await self._connect(address)
            except OSError as error:
                problem = error
        assert problem is not None
        raise problem

    async def _connect(self, host: str, **more: float) -> Connection:
        if self._tls is not None:
            more = {**more, "ssl": self._tls, "server_hostname": self._host}  # type: ignore[dict-item]
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: Connection(self._open, self._buffer),
            host,
            self._port,
            **more,  # type: ignore[arg-type]
        )
        return connection

    async def _resolve(self) -> list[str]:
        async with self._lock:
            now = time.perf_counter()
            if now - self._resolved_s > ADDRESSES_S:
                rows = await asyncio.get_running_loop().getaddrinfo(
                    self._host, self._port, type=socket.SOCK_STREAM
                )
                self._addresses = list(dict.fromkeys(str(row[4][0]) for row in rows))
                self._resolved_s = now
            return self._addresses


def request_head(url: str, headers: dict[str, str], *, body_bytes: int) -> bytes:
    """Request line and headers of a POST. Raises ValueError, naming it, for a header that lies."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    login, _, host = parts.netloc.rpartition("@")
    if login:
        headers = {
            "Authorization": f"Basic {b64encode(unquote(login).encode()).decode()}",
            **headers,
        }
    every = {"Host": host, "Accept-Encoding": "identity", "User-Agent": "turbo-lab",
             "Content-Length": str(body_bytes), **headers}  # fmt: skip
    lines = [f"POST {path} HTTP/1.1", *[f"{name}: {value}" for name, value in every.items()]]
    for line in lines:
        if "\r" in line or "\n" in line:
            raise ValueError(f"the header {line.partition(':')[0]!r} holds a line break")
    try:
        return "\r\n".join([*lines, "", ""]).encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError("a header holds characters outside Latin-1") from None
