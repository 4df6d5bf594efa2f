"""A small process that stands between us and a server, so that no server is ever left behind.

The guardian starts the server in a process group of its own and ends that group when it is asked to
(SIGTERM), or when the last process that holds a lease on the server is gone: a kernel that was
killed, a test that crashed, a terminal that was closed. A lease is a file named after a process and
its start time, so that a recycled process id does not keep a server alive.

Little but the standard library; it must start in a few milliseconds and outlive any trouble in its
parent.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from turbo_lab.core.processes import (
    STOP_TIMEOUT_S,
    group_members,
    process_token,
    stop_group,
)

__all__ = [
    "STOP_TIMEOUT_S", "Guardian", "add_lease", "die_with_parent", "group_members",
    "has_living_lease", "process_token", "stop_group",
]  # fmt: skip

POLL_S = 0.25


def add_lease(folder: Path, pid: int | None = None) -> Path:
    """Hold the server for process ``pid`` (default: this one). Returns the lease file."""
    token = process_token(pid or os.getpid())
    if token is None:
        raise ProcessLookupError(f"process {pid} is gone")
    folder.mkdir(parents=True, exist_ok=True)
    lease = folder / token
    lease.touch()
    return lease


def has_living_lease(folders: list[Path]) -> bool:
    """True while a process that holds a lease lives; leases of dead ones are removed."""
    alive = False
    for folder in folders:
        for lease in folder.glob("*-*"):
            if process_token(int(lease.name.split("-")[0])) == lease.name:
                alive = True
            else:
                lease.unlink(missing_ok=True)
    return alive


def die_with_parent() -> None:
    """Ask for SIGTERM when the parent dies, so that even a killed guardian leaves no server."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGTERM)


class Guardian:
    """Runs one command until it ends, is asked to end, or nobody holds a lease any more."""

    def __init__(
        self, command: list[str], *, leases: list[Path], grace_s: float, status: Path, log: Path
    ) -> None:
        self.command, self.leases, self.grace_s = command, leases, grace_s
        self.status, self.log = status, log
        self.stop_reason: str | None = None

    def run(self) -> int:
        """Guard the command to its end; returns its exit code."""
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sig, lambda number, _: self._ask(f"signal {signal.Signals(number).name}"))
        with self.log.open("ab") as log:
            try:
                child = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
            except OSError as error:
                log.write(f"cannot run {self.command[0]}: {error}\n".encode())
                self._write(returncode=127, reason="the command cannot be run", pgid=None)
                return 127
        self._write(returncode=None, reason=None, pgid=child.pid)
        code = self._watch(child)
        stop_group(child.pid)
        self._write(
            returncode=code, reason=self.stop_reason or "the server ended by itself", pgid=child.pid
        )
        return code

    def _ask(self, reason: str) -> None:
        self.stop_reason = self.stop_reason or reason

    def _watch(self, child: subprocess.Popen) -> int:
        last_held = time.monotonic()
        while child.poll() is None:
            if has_living_lease(self.leases):
                last_held = time.monotonic()
            elif time.monotonic() - last_held >= self.grace_s:
                self._ask("nobody holds a lease any more")
            if self.stop_reason:
                child.terminate()
                stop_group(child.pid)
                break
            time.sleep(POLL_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(timeout=5.0)
        return -1

    def _write(self, **facts: object) -> None:
        partial = self.status.with_suffix(".part")
        with contextlib.suppress(OSError):  # a full disk must not keep the guardian from its duty
            partial.write_text(json.dumps({"guardian": os.getpid(), **facts}))
            partial.replace(self.status)


def main() -> None:
    """Command line: options, then ``--``, then the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leases", action="append", type=Path, required=True)
    parser.add_argument("--grace-s", type=float, default=0.0)
    parser.add_argument("--status", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    sys.exit(
        Guardian(
            command, leases=args.leases, grace_s=args.grace_s, status=args.status, log=args.log
        ).run()
        & 0xFF
    )


if __name__ == "__main__":
    main()
