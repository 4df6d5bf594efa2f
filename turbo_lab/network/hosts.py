"""What every kind of hosts offers, and the starting and ending that all share."""

from __future__ import annotations

import abc
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from turbo_lab.core.closing import Closing
from turbo_lab.core.errors import TurboLabError, UsageError
from turbo_lab.network import keeper
from turbo_lab.network.host_process import HostProcess
from turbo_lab.network.link import Link

HostsKind = Literal["namespaces", "paced"]
KEEPER_TIMEOUT_S = keeper.CLEAN_TIMEOUT_S + 5.0


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


class Hosts(Closing):
    """Hosts behind one switch. Use as a context manager; ``close`` may be called twice.

    ``kind`` says what they are made of, ``why`` for which reason this kind was taken. Both belong
    beside every number measured on them.
    """

    kind: HostsKind

    def __init__(
        self, count: int, *, link: Link, why: str, namespaces: int, own_user: bool
    ) -> None:
        self.count, self.link, self.why = count, link, why
        self.name = keeper.new_name()
        self.folder = Path(tempfile.mkdtemp(prefix="turbo-lab-hosts-"))
        self._processes: list[HostProcess] = []
        self._keeper = _start_keeper(
            self.name, self.folder, namespaces=namespaces, own_user=own_user
        )
        atexit.register(self.close)
        facts = json.loads(self._keeper.stdout.readline() or '{"error": "its keeper ended"}')
        if "error" in facts:
            self.close()
            raise TurboLabError(f"no network namespace can be made here: {facts['error']}")
        self.keeper_threads: list[int] = facts["threads"]

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
    def free_port(self, host: int) -> int:
        """A TCP port that nothing listens on in host ``host`` now."""

    @abc.abstractmethod
    def counters(self, host: int) -> Counters:
        """The interface's counters now. Raises UnmeasuredError where a host has none of its own."""

    @abc.abstractmethod
    def shape(self, host: int, link: Link | str, *, switch_mtu_bytes: int | None = None) -> None:
        """Give host ``host`` another link. ``switch_mtu_bytes``: a different MTU at the far end.

        Raises UnmeasuredError where the kind of hosts cannot do that.
        """

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
        Raises UsageError for an unknown host, TurboLabError for an unknown program.
        """
        self.require(host)
        path = Path(log) if log else self.folder / f"host{host}-{len(self._processes)}.log"
        own = {keeper.NAME_VARIABLE: self.name, **self.environment(host), **(env or {})}
        if shutil.which(argv[0]) is None:
            raise TurboLabError(f"there is no program {argv[0]!r} to run in host {host}")
        with path.open("wb") as output:
            popen = subprocess.Popen(
                self.command(host, argv), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, env={**os.environ, **own}, cwd=cwd,
                start_new_session=True,
            )  # fmt: skip
        process = HostProcess(
            popen, host=host, argv=list(argv), log=path, deadline_s=time.monotonic() + timeout_s
        )
        self._processes.append(process)
        return process

    def require(self, host: int) -> None:
        """Refuse a host that there is not, or any once closed."""
        if self._keeper.poll() is not None:
            raise TurboLabError("these hosts are closed; open new ones with open_hosts")
        if not 0 <= host < self.count:
            raise UsageError(f"there is no host {host}; allowed: 0 to {self.count - 1}")

    def close(self) -> None:
        """Kill what runs in the hosts and remove hosts and links. Returns when they are gone."""
        for process in self._processes:
            if process.popen.poll() is None:
                process.stop(grace_s=0.2)
        self._keeper.stdin.close()
        self._keeper.wait(KEEPER_TIMEOUT_S)
        self._keeper.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)  # should the keeper have failed
        atexit.unregister(self.close)


def _start_keeper(name: str, folder: Path, *, namespaces: int, own_user: bool) -> subprocess.Popen:
    command = [
        sys.executable, "-m", "turbo_lab.network.keeper", name, str(folder),
        "--namespaces", str(namespaces),
    ]  # fmt: skip
    return subprocess.Popen(
        [*command, *(["--own-user"] if own_user else [])], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
