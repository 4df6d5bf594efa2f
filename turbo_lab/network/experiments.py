"""Experiments on hosts: what a link carries, and three ways in which a reproduction fails on it.

Plain sockets and small processes, no library between: what they show is the network's own. Every
result names the kind of hosts it was measured on.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.network import traffic
from turbo_lab.network.host_process import HostProcess
from turbo_lab.network.hosts import Counters, Hosts
from turbo_lab.network.link import Link
from turbo_lab.network.piecewise import Point

READY_TIMEOUT_S = 15.0
RUN_TIMEOUT_S = 60.0
LEAD_S = 0.25  # senders are connected this long before they start together
HEAD_S = 0.02  # cross traffic starts this much before what it disturbs
NOISE_TIMES = 4  # and sends so many times the bytes
PROBE_WAIT_S = 0.4
PROBE_SIZES = (576, 1000, 1400, 1500, 1501, 2000, 4000, 8000, 9000)


@dataclass(frozen=True)
class Transfer:
    """One stream. ``counted``: what the sender's interface added meanwhile, None if unknown.

    ``retransmits``: segments sent again; None where the kernel does not say.
    """

    kind: str
    payload_bytes: int
    seconds: float
    retransmits: int | None = None
    counted: Counters | None = None

    @property
    def rate_bit_s(self) -> float:
        """Payload per second."""
        return 8 * self.payload_bytes / self.seconds

    def share_of(self, link: Link) -> float | None:
        """Payload rate over the link's rate; None for an unshaped link."""
        return None if link.rate_bit_s is None else self.rate_bit_s / link.rate_bit_s


@dataclass(frozen=True)
class MtuProbe:
    """Which packets reach a host. Sizes are of the whole IP packet.

    ``small_s``, ``large_s``: seconds of a TCP transfer of 100 bytes and of 100 KB; None where it
    never ended.
    """

    interface_mtu_bytes: int
    passed_bytes: tuple[int, ...]
    vanished_bytes: tuple[int, ...]
    small_s: float | None
    large_s: float | None

    @property
    def path_mtu_bytes(self) -> int:
        """Largest tried packet that came through; 0 when none did."""
        return max(self.passed_bytes, default=0)

    @property
    def mismatch(self) -> bool:
        """True when small packets pass and larger ones, which the interface takes, vanish."""
        return bool(self.passed_bytes and self.vanished_bytes)


@dataclass(frozen=True)
class Incast:
    """Several hosts send to one at the same time.

    ``ideal_s``: all payload at the receiver's rate. ``dropped_packets``: at the receiver's port of
    the switch; None where there is none. ``streams``: one per sender.
    """

    kind: str
    senders: int
    bytes_each: int
    seconds: float
    ideal_s: float | None
    dropped_packets: int | None
    streams: tuple[Transfer, ...]

    @property
    def retransmits(self) -> int:
        """Segments sent again, over all senders."""
        return sum(stream.retransmits or 0 for stream in self.streams)

    @property
    def slowest_over_fastest(self) -> float:
        """How unevenly the senders finished."""
        times = [stream.seconds for stream in self.streams]
        return max(times) / min(times)


@dataclass(frozen=True)
class CrossTraffic:
    """The same transfer alone, and beside another one to the same host."""

    alone: Transfer
    beside: Transfer

    @property
    def slowdown(self) -> float:
        """Time beside over time alone; 2 for a link shared fairly."""
        return self.beside.seconds / self.alone.seconds


def point_to_point(
    hosts: Hosts, *, source: int = 0, target: int = 1, payload_bytes: int = 32_000_000
) -> Transfer:
    """Send ``payload_bytes`` over one TCP connection; the time ends with the receiver's answer."""
    before = _counters(hosts, source)
    receiver, port = _listen(hosts, target, "receive")
    sender = _start(hosts, source, target, port, "send", bytes=payload_bytes)
    result = _result(sender)
    receiver.check(RUN_TIMEOUT_S)
    after = _counters(hosts, source)
    counted = after.since(before) if after and before else None
    return _transfer(hosts, result, counted)


def message_points(
    hosts: Hosts, sizes: Sequence[int], *, source: int = 0, target: int = 1, repeats: int = 5
) -> list[Point]:
    """(bytes, seconds one way) of messages between two hosts, every repeat: half a round trip."""
    receiver, port = _listen(hosts, target, "echo")
    sender = _start(hosts, source, target, port, "rounds", sizes=sizes, repeats=repeats)
    found = _result(sender)["rounds"]
    receiver.check(RUN_TIMEOUT_S)
    return [(float(size), seconds / 2) for size, seconds in found]


def probe_mtu(
    hosts: Hosts, *, source: int = 0, target: int = 1, sizes: Sequence[int] = PROBE_SIZES
) -> MtuProbe:
    """Find which packet sizes get from ``source`` to ``target``, and whether TCP notices.

    A switch port with a smaller MTU than the hosts drops larger packets without a word: a
    connection opens and small messages pass, then the first large one hangs.
    Raises UnmeasuredError on paced hosts, which have no packets.
    """
    _need_packets(hosts, "an MTU")
    receiver, port = _listen(hosts, target, "reflect", timeout_s=READY_TIMEOUT_S)
    found = _result(
        _start(hosts, source, target, port, "probe", sizes=sizes, timeout_s=PROBE_WAIT_S)
    )
    receiver.stop(grace_s=0.0)
    small, large = (
        _try_transfer(hosts, source, target, payload_bytes=size) for size in (100, 100_000)
    )
    passed, refused = set(found["came"]), set(found["refused"])
    return MtuProbe(
        max((s for s in sizes if s not in refused), default=0),
        tuple(s for s in sizes if s in passed),
        tuple(s for s in sizes if s not in passed | refused),
        small, large,
    )  # fmt: skip


def incast(hosts: Hosts, *, bytes_each: int = 1_000_000, target: int = 0) -> Incast:
    """All other hosts send ``bytes_each`` to ``target`` at the same moment.

    Raises UnmeasuredError when one had finished before the last began.
    """
    senders = [host for host in range(hosts.count) if host != target]
    drops = _switch_drops(hosts, target)
    receiver, port = _listen(hosts, target, "receive", connections=len(senders))
    at_s = time.monotonic() + LEAD_S * (1 + len(senders) / 2)
    started = [
        _start(hosts, host, target, port, "send", bytes=bytes_each, at_s=at_s) for host in senders
    ]
    results = [_result(one) for one in started]
    receiver.check(RUN_TIMEOUT_S)
    starts = [r["started_s"] for r in results]
    ends = [r["started_s"] + r["seconds"] for r in results]
    if max(starts) > min(ends):
        raise UnmeasuredError("the senders did not send at the same time; the machine is too busy")
    rate = hosts.link.rate_bytes_s
    after = _switch_drops(hosts, target)
    return Incast(
        hosts.kind, len(senders), bytes_each,
        seconds=max(ends) - min(starts),
        ideal_s=None if rate is None else len(senders) * bytes_each / rate,
        dropped_packets=None if drops is None or after is None else after - drops,
        streams=tuple(_transfer(hosts, r) for r in results),
    )  # fmt: skip


def cross_traffic(
    hosts: Hosts, *, source: int = 0, other: int = 1, target: int = 2,
    payload_bytes: int = 8_000_000,
) -> CrossTraffic:  # fmt: skip
    """The time of one transfer alone, then beside a longer one from ``other`` to the same host."""
    if len({source, other, target}) < 3:
        raise UsageError(f"source {source}, other {other} and target {target} must be three hosts")
    alone = point_to_point(hosts, source=source, target=target, payload_bytes=payload_bytes)
    receiver, port = _listen(hosts, target, "receive", connections=2)
    at_s = time.monotonic() + 2 * LEAD_S
    noise = _start(
        hosts, other, target, port, "send", bytes=NOISE_TIMES * payload_bytes, at_s=at_s - HEAD_S
    )
    row = _result(_start(hosts, source, target, port, "send", bytes=payload_bytes, at_s=at_s))
    loud = _result(noise)
    receiver.check(RUN_TIMEOUT_S)
    starts_before = loud["started_s"] < row["started_s"]
    if not starts_before or loud["started_s"] + loud["seconds"] < row["started_s"] + row["seconds"]:
        raise UnmeasuredError("the cross traffic did not last as long as what it should disturb")
    return CrossTraffic(alone, _transfer(hosts, row))


def median_points(points: Sequence[Point]) -> list[Point]:
    """One point per size: the median of its repeats."""
    ordered = itertools.groupby(sorted(points), key=lambda point: point[0])
    return [(size, statistics.median(seconds for _, seconds in group)) for size, group in ordered]


def _command(name: str, address: str, port: int, options: dict[str, Any]) -> list[str]:
    words = [sys.executable, "-I", "-S", str(Path(traffic.__file__)), name, address, str(port)]
    for key, value in options.items():
        words.append("--" + key.replace("_", "-"))
        words += [str(v) for v in value] if isinstance(value, Sequence) else [str(value)]
    return words


def _listen(hosts: Hosts, host: int, name: str, **options: Any) -> tuple[HostProcess, int]:
    """Start a listener; returns it once it listens."""
    port = hosts.free_port(host)
    command = _command(name, hosts.address(host), port, options)
    process = hosts.run(host, command, timeout_s=RUN_TIMEOUT_S)
    deadline = time.monotonic() + READY_TIMEOUT_S
    while '"listening"' not in process.output():
        if process.poll() is not None or time.monotonic() > deadline:
            raise UnmeasuredError(f"{process.describe()} does not listen.\n{process.tail()}")
        time.sleep(0.005)
    return process, port


def _start(
    hosts: Hosts, source: int, target: int, port: int, name: str, **options: Any
) -> HostProcess:
    address, door = hosts.route(source, target, port=port)
    command = _command(name, address, door, options)
    return hosts.run(source, command, timeout_s=RUN_TIMEOUT_S)


def _result(process: HostProcess) -> dict[str, Any]:
    """The last line of a process that ended well."""
    return json.loads(process.check(RUN_TIMEOUT_S).splitlines()[-1])


def _transfer(hosts: Hosts, row: dict[str, Any], counted: Counters | None = None) -> Transfer:
    if not row["answered"]:
        raise UnmeasuredError(f"the receiver never answered within {row['seconds']:.1f} s")
    return Transfer(hosts.kind, row["bytes"], row["seconds"], row["retransmits"], counted)


def _try_transfer(hosts: Hosts, source: int, target: int, *, payload_bytes: int) -> float | None:
    """Seconds of a transfer that may hang; None when it does."""
    receiver, port = _listen(hosts, target, "receive")
    sender = _start(hosts, source, target, port, "send", bytes=payload_bytes, timeout_s=1.0)
    row = _result(sender)
    receiver.stop(grace_s=0.0)
    return row["seconds"] if row["answered"] else None


def _counters(hosts: Hosts, host: int) -> Counters | None:
    try:
        return hosts.counters(host)
    except UnmeasuredError:
        return None


def _switch_drops(hosts: Hosts, host: int) -> int | None:
    return hosts.switch_drops(host) if hosts.kind == "namespaces" else None


def _need_packets(hosts: Hosts, what: str) -> None:
    if hosts.kind != "namespaces":
        raise UnmeasuredError(f"{hosts.kind} hosts have no packets, so {what} does not exist there")
