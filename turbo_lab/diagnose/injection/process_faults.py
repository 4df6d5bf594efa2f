"""Faults of the engine's own processes and of its draft."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.core.processes import group_members
from turbo_lab.diagnose.injection.fault import Evidence, Fault
from turbo_lab.diagnose.injection.patient import Patient
from turbo_lab.diagnose.injection.ward import Ward
from turbo_lab.engines.base import GuardedProcess

TITLES = {"worker": b"VLLM::Worker", "engine": b"VLLM::EngineCore"}
DRAFTED_REPLY_TOKENS = 48  # for several hundred guesses; fewer tell nothing
DEATH_S = 60.0  # for the front end to notice and end itself


def processes_of(process: GuardedProcess) -> dict[int, bytes]:
    """Process ids of a server's own group with their titles. Raises UnmeasuredError for none."""
    try:
        group = json.loads(process.status.read_text())["pgid"]
    except (OSError, ValueError, KeyError) as error:
        raise UnmeasuredError(f"the guardian names no process group: {error}") from error
    found = {}
    for pid in group_members(group):
        with contextlib.suppress(OSError):
            found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
    if not found:
        raise UnmeasuredError("the server has no processes that this system shows (no /proc)")
    return found


def kill_part(process: GuardedProcess, part: str) -> int:
    """SIGKILL one process of the server's own group; returns its id.

    ``part`` is ``worker`` or ``engine``. With one rank there may be no worker of its own (a GPU);
    then the engine does its work and is what is killed. Raises UnmeasuredError for none.
    """
    found = processes_of(process)
    wanted = dict.fromkeys((part, "engine"))
    for name in wanted:
        for pid, title in found.items():
            if title.startswith(TITLES[name]):
                os.kill(pid, signal.SIGKILL)
                return pid
    raise UnmeasuredError(f"no process of the server is called {part}: {sorted(found.values())}")


@contextmanager
def _killed(
    ward: Ward, on: bool, *, part: str, patient_of: Callable[[Ward], Patient]
) -> Iterator[Evidence]:
    """A part of the engine is killed; off: the same look at a server left alone."""
    patient = patient_of(ward)
    watch, server = patient.watch(), patient.server
    if not on:
        yield watch.evidence(patient.ask(patient.requests(2), concurrency=1))
        return
    try:
        kill_part(server.process, part)  # type: ignore[attr-defined]
        deadline = time.monotonic() + DEATH_S
        while server.alive() and time.monotonic() < deadline:
            time.sleep(0.2)
        runs = patient.ask(patient.requests(2), timeout_s=5.0)
        yield Evidence(watch.log(), None, tuple(runs))
    finally:
        server.stop()  # type: ignore[attr-defined]


@contextmanager
def bad_draft(ward: Ward, on: bool) -> Iterator[Evidence]:
    """Speculation with an untrained draft; off: the same requests where nothing is guessed."""
    patient = ward.drafted if on else ward.patient
    count = ward.long_replies_that_fit()
    watch = patient.watch()
    yield watch.evidence(patient.ask(patient.requests(count, reply_tokens=DRAFTED_REPLY_TOKENS)))


GONE = ("engine_died", "server_errors", "connection_broken", "peer_unreachable", "error_rate",
        "request_timeouts", "clients_gave_up")  # fmt: skip
PROCESS_FAULTS = (
    Fault("bad draft", "speculation with an untrained draft model", "slower than without",
          ("draft_rarely_accepted",), "running", bad_draft, ("tpot_bound",)),
    Fault("killed worker", "SIGKILL to the process that computes", "replies break off, then none",
          ("worker_killed",), "end",
          functools.partial(_killed, part="worker", patient_of=lambda ward: ward.patient), GONE),
    Fault("killed engine", "SIGKILL to the engine core", "replies break off, then none",
          ("worker_killed",), "end",
          functools.partial(_killed, part="engine", patient_of=lambda ward: ward.drafted), GONE),
)  # fmt: skip
