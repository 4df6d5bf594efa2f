"""Processes by identity and by group: is it the same one still, and end all of a group.

Standard library only: the small processes that guard others start in milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

STOP_TIMEOUT_S = 15.0
KILL_WAIT_S = 5.0


def process_token(pid: int) -> str | None:
    """Name of a living process that no later process can have; None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        if sys.platform == "linux":
            return None
        try:  # other systems have no /proc; there the id alone must do
            os.kill(pid, 0)
        except OSError:
            return None
        return f"{pid}-0"
    return None if fields[0] in "ZX" else f"{pid}-{fields[19]}"


def is_same_process(token: str) -> bool:
    """True while the process that ``process_token`` named lives."""
    return process_token(int(token.split("-")[0])) == token


def group_members(pgid: int) -> list[int]:
    """Living processes of a process group."""
    members = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = entry.read_text().rpartition(")")[2].split()
            if int(fields[2]) == pgid and fields[0] not in "ZX":
                members.append(int(entry.parent.name))
    return members


def stop_group(pgid: int, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
    """End a process group: SIGTERM, then SIGKILL for what is left after ``timeout_s``.

    A child of the caller stays a zombie until its own ``wait``, so that its exit code is not lost.
    """
    for sig, wait_s in ((signal.SIGTERM, timeout_s), (signal.SIGKILL, KILL_WAIT_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pgid, sig)
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            if not group_members(pgid):
                return
            time.sleep(0.02)
