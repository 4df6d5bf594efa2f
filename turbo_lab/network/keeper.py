"""A small process that holds the hosts, so that nothing of them outlives whoever opened them.

Its threads hold one network namespace each (the last is the switch). It waits for the end of its
standard input, which the opener holds open: an exception, Ctrl-C, SIGTERM and even SIGKILL all
close it. Then the keeper kills every process of the hosts, removes their folder of logs and ends;
with it the namespaces, their interfaces and their links are gone, as they have no name that could
keep them.

A process belongs to the hosts when it carries their name in its environment or lives in one of
their namespaces. The name holds the opener's process id and start time.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

from turbo_lab.core.processes import is_same_process, process_token

NAME_VARIABLE = "TURBO_LAB_HOSTS"
NAME_PREFIX = "turbo-lab-hosts-"
CLEAN_TIMEOUT_S = 10.0
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000


def new_name() -> str:
    """Name of hosts that this process opens."""
    return f"{NAME_PREFIX}{process_token(os.getpid())}-{secrets.token_hex(3)}"


def opener_lives(name: str) -> bool:
    """True while the process that chose ``name`` lives, or when it is no name of ours."""
    token = name.removeprefix(NAME_PREFIX).rpartition("-")[0]
    try:
        return is_same_process(token)
    except ValueError:
        return True


def processes_named(name: str | None = None) -> dict[int, str]:
    """Living processes whose environment carries ``name`` (None: any hosts' name), by id."""
    mark = f"{NAME_VARIABLE}={name or NAME_PREFIX}".encode()
    found: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            for part in entry.read_bytes().split(b"\0"):
                if part == mark if name else part.startswith(mark):
                    found[int(entry.parent.name)] = part.decode().partition("=")[2]
    return found


def processes_in(namespaces: set[str]) -> set[int]:
    """Living processes whose network namespace is one of these (``net:[4026532177]``)."""
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):
            if str(entry.readlink()) in namespaces:
                found.add(int(entry.parts[2]))
    return found


def _unshare(flags: int) -> None:
    """Leave a namespace. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become_root_of_own() -> None:
    """Enter a user namespace where this user counts as root. Raises OSError where forbidden."""
    uid, gid = os.getuid(), os.getgid()
    _unshare(CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


class Namespaces:
    """Network namespaces, each held by a thread of this process."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.links: set[str] = set()
        self._error: OSError | None = None

    def add(self) -> None:
        """Make one more. Raises OSError."""
        ready = threading.Event()
        threading.Thread(target=self._hold, args=(ready,), daemon=True).start()
        ready.wait()
        if self._error:
            raise self._error

    def _hold(self, ready: threading.Event) -> None:
        try:
            _unshare(CLONE_NEWNET)
            self.links.add(str(Path("/proc/thread-self/ns/net").readlink()))
            self.threads.append(threading.get_native_id())
        except OSError as error:
            self._error = error
        ready.set()
        threading.Event().wait()


def clean(name: str, namespaces: set[str]) -> None:
    """Kill every process of the hosts, until none is left."""
    deadline = time.monotonic() + CLEAN_TIMEOUT_S
    while time.monotonic() < deadline:
        left = (set(processes_named(name)) | processes_in(namespaces)) - {os.getpid()}
        left = {pid for pid in left if process_token(pid) is not None}
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def main() -> None:
    """Make the namespaces, say so in one line of JSON, wait, clean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--namespaces", type=int, default=0)
    parser.add_argument("--own-user", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    made = Namespaces()
    try:
        if args.own_user:
            become_root_of_own()
        for _ in range(args.namespaces):
            made.add()
        print(json.dumps({"threads": made.threads}), flush=True)
        sys.stdin.read()
    except OSError as error:
        print(json.dumps({"error": error.strerror or str(error)}), flush=True)
    finally:
        clean(args.name, made.links)
        shutil.rmtree(args.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
