"""What this machine knows about a running server: its sockets, its process, its log."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from turbo_lab.core.errors import UsageError
from turbo_lab.core.host import short_path
from turbo_lab.engines.safety.plan import Plan, is_loopback
from turbo_lab.engines.safety.row import Check, by_exposure, row
from turbo_lab.records.redact import HIDDEN, redact

MOST_LINES = 200_000
_MAYBE_SECRET = re.compile(rb"(?i)key|token|passw|secret|bearer|basic |hf_|sk-|akia|://[^/\s]*@")
# A setting that is named in a log but holds no secret.
_EMPTY = re.compile(
    r"(?i)\w*(?:key|token|password|secret)\w*['\"]?\s*[=:]\s*['\"]?(?:none|null|true|false|\*+|"
    r"\[redacted\])['\"]?"
)
# Prompts and replies as vLLM 0.2 to 0.33 writes them: with the request, in its body, in the answer.
_PROMPT = re.compile(
    rb"(?i)received request .{0,200}?(?<!_)prompt: ['\"]|details: prompt: ['\"]|"
    rb"prompt_token_ids: \[\d|json body: \{|generated response .{0,200}?output: ['\"]"
)


@dataclass(frozen=True)
class Listener:
    """One listening socket; ``pid`` is None when the system does not tell whose it is."""

    address: str
    pid: int | None


def listeners(port: int) -> list[Listener]:
    """Sockets of this machine that listen on a port (from /proc/net/tcp and tcp6 on Linux).

    Empty when there is none, or when the system keeps it to itself.
    """
    import psutil

    try:
        rows = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return []
    return [
        Listener(str(one.laddr.ip), one.pid)
        for one in rows
        if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port
    ]


def loopback_row(sockets: list[Listener], *, port: int) -> Check:
    """Does any socket of the port listen on an address that other machines reach?"""
    if not sockets:
        seen = f"no socket of this machine is seen on port {port} (another host or container?)"
        return row("loopback_only", "unknown", seen)
    addresses = sorted({one.address for one in sockets})
    open_to_all = [address for address in addresses if not is_loopback(address)]
    if open_to_all:
        return row("loopback_only", "fail", f"port {port} listens on {', '.join(open_to_all)}")
    return row("loopback_only", "ok", f"port {port} listens on {', '.join(addresses)}")


@dataclass(frozen=True)
class RunningProcess:
    """The process behind a port. ``plan`` is None when it is no ``vllm serve`` of ours to read."""

    pid: int
    uid: int | None
    plan: Plan | None


def process_of(sockets: list[Listener]) -> RunningProcess | None:
    """Who listens, with its command line; None when the system does not tell."""
    import psutil

    pids = [one.pid for one in sockets if one.pid is not None]
    if not pids:
        return None
    try:
        process = psutil.Process(pids[0])
        command, uid = process.cmdline(), _uid(process)
    except psutil.Error:
        return None
    try:
        env = process.environ()
    except psutil.Error:
        env = {}
    return RunningProcess(pids[0], uid, running_plan(command, env=env))


def running_plan(command: Sequence[str], *, env: Mapping[str, str]) -> Plan | None:
    """How a process was started; None for no ``vllm serve``, or one whose file is out of reach."""
    try:
        return Plan.of_command(command, env=env)
    except UsageError:
        return None


def _uid(process: object) -> int | None:
    uids = getattr(process, "uids", None)  # Windows has none
    return uids().effective if uids else None


def root_row(uid: int | None, *, running: bool, exposed: bool) -> Check:
    """Does the server run (or would it run) as root?"""
    if uid is None:
        return row("not_root", "unknown", "whose process it is could not be read")
    does = "runs" if running else "would run"
    if uid == 0:
        return row("not_root", by_exposure(exposed), f"it {does} as root")
    return row("not_root", "ok", f"it {does} as user {uid}")


def own_uid() -> int | None:
    """The user of this process; None where there is no such number."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def log_rows(log: Path) -> list[Check]:
    """Rows about a server's log: who may read it, and what it gives away.

    Raises UsageError when it cannot be read.
    """
    if not log.is_file():
        raise UsageError(
            f"--log {log} is no file; a server of turbo-lab prints the path of its log"
        )
    try:
        return [_private(log), _clean(log)]
    except OSError as error:
        raise UsageError(f"--log {log} cannot be read: {error.strerror or error}") from error


def _private(log: Path) -> Check:
    mode = log.stat().st_mode & 0o777
    way = all(folder.stat().st_mode & 0o001 for folder in log.resolve().parents)
    if mode & 0o004 and way:
        return row("log_private", "warn", f"{short_path(log)} has mode {mode:o}: all may read it")
    return row("log_private", "ok", f"mode {mode:o}{'' if way else ', in a closed folder'}")


def _clean(log: Path) -> Check:
    lines = 0
    with log.open("rb") as stream:
        for lines, line in enumerate(stream, 1):
            if lines > MOST_LINES:
                break
            if _PROMPT.search(line):
                return row("log_clean", "fail", f"line {lines} holds a prompt or a reply")
            if _MAYBE_SECRET.search(line) and holds_secret(line.decode("utf-8", "replace")):
                return row("log_clean", "fail", f"line {lines} holds a key or a password")
    more = f" (of the first {MOST_LINES:,})" if lines > MOST_LINES else ""
    return row("log_clean", "ok", f"{min(lines, MOST_LINES):,} lines{more}: no key, no prompt")


def holds_secret(line: str) -> bool:
    """True when the redaction of records would hide something in this line."""
    rest = _EMPTY.sub("", line).replace(HIDDEN, "")
    return HIDDEN in str(redact(rest))
