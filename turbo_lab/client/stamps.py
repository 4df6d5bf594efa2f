"""Arrival times taken where the bytes leave the kernel, not where our task wakes up for them."""

from __future__ import annotations

import socket
import time
import weakref
from collections.abc import Callable
from typing import Any

import aiohttp


class StampedSocket(socket.socket):
    """A socket that remembers when it last received bytes."""

    last_recv_s: float | None = None

    def recv(self, *args: Any) -> bytes:
        """As socket.recv."""
        data = super().recv(*args)
        self.last_recv_s = time.perf_counter()
        return data

    def recv_into(self, *args: Any) -> int:
        """As socket.recv_into (TLS connections use it)."""
        count = super().recv_into(*args)
        self.last_recv_s = time.perf_counter()
        return count


class SocketStamps:
    """Makes a session's sockets and finds the one behind a response."""

    def __init__(self) -> None:
        self._sockets: weakref.WeakValueDictionary[int, StampedSocket] = (
            weakref.WeakValueDictionary()
        )

    def make(self, address: tuple[Any, ...]) -> StampedSocket:
        """Socket factory for aiohttp's connector; ``address`` is a getaddrinfo row."""
        family, kind, protocol, _, _ = address
        made = StampedSocket(family, kind, protocol)
        self._sockets[made.fileno()] = made
        return made

    def clock(self, response: aiohttp.ClientResponse) -> Callable[[], float]:
        """A function that tells when the bytes just read arrived.

        Now, where the socket is unknown (another event loop, a reply that was already complete).
        """
        transport = response.connection.transport if response.connection else None
        raw = transport.get_extra_info("socket") if transport is not None else None
        stamped = self._sockets.get(raw.fileno()) if raw is not None else None
        if stamped is None:
            return time.perf_counter
        return lambda: stamped.last_recv_s or time.perf_counter()
