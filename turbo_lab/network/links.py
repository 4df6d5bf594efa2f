"""Two to nine "hosts" on one machine, joined by links whose speed and packet size we choose.

``open_hosts`` returns the best kind that this machine allows, always labelled:

- ``namespaces``: every host is a Linux network namespace with an interface ``eth0`` of its own,
  joined by a bridge, shaped by ``tc tbf``. Real packets, real drops, real byte counters. Needs root
  or unprivileged user namespaces, and the programs ``ip``, ``tc``, ``nsenter``.
- ``paced``: every host is a group of processes on loopback; connections are slowed to the link's
  rate. No packets of our own, so nothing is dropped and no header bytes can be counted.

Nothing outlives the process that opened the hosts, however it ends (see ``keeper``). Only
addresses of these hosts are ever used; no setting of the machine itself is changed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from turbo_lab.core.errors import TurboLabError, UsageError, did_you_mean
from turbo_lab.core.processes import process_token
from turbo_lab.network import keeper
from turbo_lab.network.host_process import HostProcess
from turbo_lab.network.hosts import Counters, Hosts
from turbo_lab.network.link import Link, as_link, parse_rate

__all__ = [
    "Counters", "HostProcess", "Hosts", "Link", "as_link", "clean_stale", "open_hosts",
    "parse_rate",
]  # fmt: skip

KINDS = ("auto", "namespaces", "paced")
MOST_HOSTS = 9  # eight, and one that serves them all, such as a switch that merges


def open_hosts(
    count: int, *, link: Link | str | float | None = "1gbit", kind: str = "auto"
) -> Hosts:
    """``count`` hosts, each with the same ``link`` to one switch.

    Args:
        count: 2 to 9.
        link: a Link, a rate such as ``"1gbit"`` or ``"100mbit"``, or None for unshaped links.
        kind: ``auto`` (namespaces where they can be made, else paced), ``namespaces``, ``paced``.

    Raises UsageError for a wrong value, and TurboLabError where ``namespaces`` was asked for and
    this machine does not allow them.
    """
    from turbo_lab.network.namespaces import NamespaceHosts
    from turbo_lab.network.paced import PacedHosts

    if not 2 <= count <= MOST_HOSTS:
        raise UsageError(f"{count} hosts were asked for; allowed: 2 to {MOST_HOSTS}")
    if kind not in KINDS:
        raise UsageError(f"There is no kind of hosts {kind!r}.{did_you_mean(kind, list(KINDS))}")
    shaped, why = as_link(link), "asked for"
    if kind != "paced":
        try:
            return NamespaceHosts(count, link=shaped)
        except TurboLabError as error:
            if kind == "namespaces":
                raise
            why = str(error)
    return PacedHosts(count, link=shaped, why=why)


def clean_stale() -> list[str]:
    """End what hosts of dead openers have left, and return their names; normally nothing.

    The keeper does this by itself; only a child that the opener forked can hold it back, or its own
    death by SIGKILL. Hosts of living openers are never touched.
    """
    cleaned: set[str] = set()
    for pid, name in _keepers().items():
        if not keeper.opener_lives(name):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)
                cleaned.add(name)
    deadline = time.monotonic() + keeper.CLEAN_TIMEOUT_S
    while cleaned & set(_keepers().values()) and time.monotonic() < deadline:
        time.sleep(0.02)
    for name in set(keeper.processes_named().values()):
        if not keeper.opener_lives(name):
            keeper.clean(name, set())
            cleaned.add(name)
    return sorted(cleaned)


def _keepers() -> dict[int, str]:
    """Names of the hosts whose keeper runs, by the keeper's process id."""
    found: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().decode(errors="replace").split("\0")
            if keeper.__name__ in words and process_token(int(entry.parent.name)):
                found[int(entry.parent.name)] = words[words.index(keeper.__name__) + 1]
    return found
