"""Two to eight "hosts" on one machine, joined by links whose speed and packet size we choose.

``open_hosts`` returns the best kind that this machine allows, always labelled:

- ``namespaces``: every host is a Linux network namespace with an interface ``eth0`` of its own,
  joined by a bridge, shaped by ``tc tbf``. Real packets, real drops, real byte counters. Needs root
  or unprivileged user namespaces, and ``ip``, ``tc``, ``nsenter``.
- ``paced``: every host is a group of processes on loopback; connections are slowed to the link's
  rate. No packets of our own, so nothing is dropped and no header bytes can be counted.

Nothing outlives the process that opened the hosts, however it ends (see ``keeper``). Only
addresses of these hosts are ever used; no setting of the machine itself is changed.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.network.host_process import HostProcess
from turbo_lab.network.link import Link, as_link

HostsKind = Literal["namespaces", "paced"]
KINDS: tuple[str, ...] = ("auto", "namespaces", "paced")
MOST_HOSTS = 8


@dataclass(frozen=True)
class Counters:
    """What one host's interface has counted since it exists: whole frames, as the kernel does."""

    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int
    dropped_packets: int

    def since(self, before: Counters) -> Counters:
        """What was added after ``before`` was read."""
        names = self.__dataclass_fields__
        return Counters(*(getattr(self, name) - getattr(before, name) for name in names))


class Hosts(abc.ABC):
    """Hosts behind one switch. Use as a context manager; ``close`` may be called twice.

    ``kind`` says what they are made of, ``why`` for which reason this kind was taken. Both belong
    beside every number measured on them.
    """

    kind: HostsKind
    why: str
    count: int
    link: Link
    folder: Path  # logs of the processes; removed at the end

    @abc.abstractmethod
    def address(self, host: int) -> str:
        """IPv4 address that the other hosts reach host ``host`` at."""

    @abc.abstractmethod
    def interface(self, host: int) -> str:
        """Name of the interface with that address (for ``GLOO_SOCKET_IFNAME``)."""

    @abc.abstractmethod
    def environment(self, host: int) -> dict[str, str]:
        """Variables a process in host ``host`` is started with, beside the caller's own."""

    @abc.abstractmethod
    def command(self, host: int, argv: Sequence[str]) -> list[str]:
        """``argv`` with what must stand before it to run inside host ``host``."""

    @abc.abstractmethod
    def route(self, source: int, target: int, *, port: int) -> tuple[str, int]:
        """Address and port where host ``source`` reaches what listens on ``target``'s ``port``.

        The same pair in namespaces; the pacing switch's own port where hosts are paced.
        """

    @abc.abstractmethod
    def counters(self, host: int) -> Counters:
        """The interface's counters now. Raises UnmeasuredError where a host has none of its own."""

    @abc.abstractmethod
    def shape(self, host: int, link: Link | str, *, switch_mtu_bytes: int | None = None) -> None:
        """Give host ``host`` another link. ``switch_mtu_bytes``: a different MTU at the far end.

        Raises UnmeasuredError where the kind of hosts cannot do that.
        """

    @abc.abstractmethod
    def run(
        self,
        host: int,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        log: Path | str | None = None,
    ) -> HostProcess:
        """Start ``argv`` in host ``host``, in a process group of its own.

        Its standard output and error go to one file (``log``, else one in ``folder``). The whole
        group is killed after ``timeout_s``, at ``close`` and when this process ends.
        ``env`` is added to this process's environment and ``environment(host)``.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Kill what runs in the hosts and remove hosts and links."""

    def __enter__(self) -> Self:
        """The hosts themselves."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


def open_hosts(
    count: int, *, link: Link | str | float | None = "1gbit", kind: str = "auto"
) -> Hosts:
    """``count`` hosts, each with the same ``link`` to one switch.

    Args:
        count: 2 to 8.
        link: a Link, a rate such as ``"1gbit"`` or ``"100mbit"``, or None for unshaped links.
        kind: ``auto`` (namespaces where they can be made, else paced), ``namespaces``, ``paced``.

    Raises UsageError for a wrong value, and TurboLabError where ``namespaces`` was asked for and
    this machine does not allow them.
    """
    if not 2 <= count <= MOST_HOSTS:
        raise UsageError(f"{count} hosts were asked for; allowed: 2 to {MOST_HOSTS}")
    if kind not in KINDS:
        raise UsageError(f"There is no kind of hosts {kind!r}.{did_you_mean(kind, list(KINDS))}")
    raise UsageError(f"kind {kind} with {as_link(link).describe()} is not built yet")
