"""Hosts without any privilege: processes on loopback behind a switch that slows their streams.

A connection from one host to another goes through the switch (``route``): a thread per direction
copies it through the sender's and the receiver's token bucket, so that several streams share a
host's link as they would on a wire. There are no packets here: nothing is lost, no header is
counted, and every host has the same address. Libraries that dial by themselves are paced by the
kernel instead, one connection at a time (``pacing.pace_sockets``).
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence
from dataclasses import replace

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.network.hosts import Counters, Hosts
from turbo_lab.network.link import Link, as_link
from turbo_lab.network.pacing import RATE_VARIABLE, TokenBucket

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 16_384
BURST_S = 0.002  # a thread's sleep ends later than asked for; what it loses must be made up
SOCKET_BUFFER_BYTES = 65_536  # small, so that what waits waits at the sender


class PacedHosts(Hosts):
    """Hosts on loopback. ``why`` says what kept them from being namespaces."""

    kind = "paced"

    def __init__(self, count: int, *, link: Link, why: str) -> None:
        super().__init__(count, link=link, why=why, namespaces=0, own_user=False)
        self._buckets = [_Buckets(link) for _ in range(count)]
        self._open: list[socket.socket] = []

    def address(self, host: int) -> str:
        """Loopback, for every host."""
        self.require(host)
        return LOOPBACK

    def interface(self, host: int) -> str:
        """``lo``."""
        self.require(host)
        return "lo"

    def environment(self, host: int) -> dict[str, str]:
        """Where gloo shall listen, and the rate for ``pace_sockets``."""
        own = {"GLOO_SOCKET_IFNAME": "lo"}
        rate = self._buckets[host].link.rate_bytes_s
        return own if rate is None else {**own, RATE_VARIABLE: str(rate)}

    def command(self, host: int, argv: Sequence[str]) -> list[str]:
        """``argv`` itself."""
        self.require(host)
        return list(argv)

    def free_port(self, host: int) -> int:
        """A TCP port on loopback that is free now."""
        self.require(host)
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            return probe.getsockname()[1]

    def route(self, source: int, target: int, *, port: int) -> tuple[str, int]:
        """A port of the switch that leads to ``port`` of host ``target``, at the links' rates."""
        self.require(source)
        self.require(target)
        if source == target:
            return LOOPBACK, port
        door = socket.create_server((LOOPBACK, 0))
        self._open.append(door)
        ends = self._buckets[source], self._buckets[target]
        threading.Thread(target=self._admit, args=(door, port, ends), daemon=True).start()
        return LOOPBACK, door.getsockname()[1]

    def counters(self, host: int) -> Counters:
        """Raises UnmeasuredError: all paced hosts share one loopback interface."""
        self.require(host)
        raise UnmeasuredError("paced hosts have no interface of their own to count bytes on")

    def shape(self, host: int, link: Link | str, *, switch_mtu_bytes: int | None = None) -> None:
        """Another rate from now on. Raises UnmeasuredError for another MTU."""
        self.require(host)
        link = as_link(link)
        if switch_mtu_bytes not in (None, link.mtu_bytes):
            raise UnmeasuredError("paced hosts send no packets of their own, so they have no MTU")
        self._buckets[host].use(link)

    def close(self) -> None:
        """End the processes, then the switch."""
        super().close()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._open.clear()

    def _admit(self, door: socket.socket, port: int, ends: tuple[_Buckets, _Buckets]) -> None:
        """Join every connection at ``door`` with one to ``port``."""
        near, far = ends
        while True:
            try:
                inner, _ = door.accept()
            except OSError:
                return
            try:
                outer = socket.create_connection((LOOPBACK, port), timeout=5.0)
            except OSError:
                inner.close()
                continue
            outer.settimeout(None)
            self._open += [inner, outer]
            for one in (inner, outer):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
            for pair in ((inner, outer, near, far), (outer, inner, far, near)):
                threading.Thread(target=_copy, args=pair, daemon=True).start()


class _Buckets:
    """A host's two directions."""

    def __init__(self, link: Link) -> None:
        self.use(link)

    def use(self, link: Link) -> None:
        self.link = replace(link)
        rate = link.rate_bytes_s
        burst = max(link.burst_bytes, int((rate or 0) * BURST_S))
        self.out = None if rate is None else TokenBucket(rate, burst_bytes=burst)
        self.into = None if rate is None else TokenBucket(rate, burst_bytes=burst)


def _copy(source: socket.socket, target: socket.socket, near: _Buckets, far: _Buckets) -> None:
    """Copy one direction to its end: out of one host's link, into the other's."""
    chunk = memoryview(bytearray(CHUNK_BYTES))
    with contextlib.suppress(OSError):
        while count := source.recv_into(chunk):
            for bucket in (near.out, far.into):
                if bucket is not None:
                    bucket.take(count)
            target.sendall(chunk[:count])
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
