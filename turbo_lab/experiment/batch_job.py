"""A batch job that ends with every task answered once, or with the reason why not.

Each task has a name; it is the file of its answer, the id of its requests and the key of its log
rows. An answer is written whole or not at all. A task that has its answer is never sent again, so
the same call goes on after a crash. What may pass on its own (a time-out, a broken connection, a
server that is full) is tried again, later and later; what cannot (a request the server refuses) is
not.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core.errors import UsageError
from turbo_lab.metrics.definitions import e2e_s, outcome
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.records.journal import Journal
from turbo_lab.records.store import write_text_atomically
from turbo_lab.workload.request import Request

LOG_NAME = "attempts.jsonl"
ANSWERS = "answers"
PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True)
class Task:
    """One piece of work. ``name``: letters, digits, ``-`` and ``_``; unique in its job."""

    name: str
    request: Request


@dataclass(frozen=True)
class JobReport:
    """How a job ended. Every task is in exactly one of ``done``, ``kept`` and ``failed``.

    ``kept``: had an answer from an earlier run. ``failed``: task to reason. ``sent``: requests,
    retries included.
    """

    done: tuple[str, ...]
    kept: tuple[str, ...]
    failed: Mapping[str, str]
    sent: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {**asdict(self), "failed": dict(self.failed)}


def run_job(
    tasks: Sequence[Task],
    *,
    base_url: str,
    folder: str | Path,
    concurrency: int,
    timeout_s: float,
    attempts: int = 3,
    pause_s: float = 0.5,
) -> JobReport:
    """Answer every task, with at most ``concurrency`` requests in flight.

    Args:
        tasks: the work, with unique names.
        base_url: root of the server.
        folder: gets ``answers/<name>.txt`` and ``attempts.jsonl``, one row per request.
        concurrency: below the server's knee, else the job waits in the server's queue and times out
            there.
        timeout_s: for each request; it must cover E2E at this concurrency, not of a single user.
        attempts: tries per task in this call.
        pause_s: wait before the second try; doubled before each further one.

    Raises:
        UsageError: names that are not unique or no file names; attempts below 1.
        RecordError: the folder cannot be written.
    """
    _check(tasks, attempts)
    home = Path(folder)
    kept = tuple(t.name for t in tasks if _answer(home, t.name).is_file())
    left = {t.name: t for t in tasks if t.name not in kept}
    failed: dict[str, str] = {}
    sent, start = 0, time.monotonic()
    with Journal(home / LOG_NAME) as log:
        load = _Load(log, home, base_url, concurrency, timeout_s)
        for attempt in range(1, attempts + 1):
            if not left:
                break
            if attempt > 1:
                time.sleep(pause_s * 2 ** (attempt - 2))
            found = load.send(left, attempt)
            sent += len(found)
            states = {name: outcome(timeline) for name, timeline in found.items()}
            failed = {n: why for n, why in failed.items() if n not in states}
            failed |= {n: s.reason for n, s in states.items() if not s.ok}
            left = {n: t for n, t in left.items() if may_pass(found[n])}
    done = tuple(t.name for t in tasks if t.name not in kept and t.name not in failed)
    return JobReport(done, kept, failed, sent, time.monotonic() - start)


def may_pass(timeline: Timeline) -> bool:
    """True for a failure that another try may not meet again.

    Time-outs, broken and cut streams, and the statuses 408, 425, 429, 500, 502, 503 and 504.
    """
    status = timeline.status_code
    return not outcome(timeline).ok and (status in (None, 200) or status in PASSING_STATUS)


def _check(tasks: Sequence[Task], attempts: int) -> None:
    twice = sorted(name for name, count in Counter(t.name for t in tasks).items() if count > 1)
    if not tasks or twice or attempts < 1:
        raise UsageError(
            f"a job needs tasks with unique names and at least one attempt; {len(tasks)} tasks, "
            f"{attempts} attempts, more than once: {twice[:3]}"
        )
    bad = [t.name for t in tasks if not _NAME.fullmatch(t.name)]
    if bad:
        raise UsageError(f"no file names: {bad[:3]}; allowed are letters, digits, '-' and '_'")


def _answer(home: Path, name: str) -> Path:
    return home / ANSWERS / f"{name}.txt"


@dataclass(frozen=True)
class _Load:
    """How one try of a set of tasks is sent and written down."""

    log: Journal
    home: Path
    base_url: str
    concurrency: int
    timeout_s: float

    def send(self, left: Mapping[str, Task], attempt: int) -> dict[str, Timeline]:
        """One try of everything that is left; answers and log rows are written as replies end."""
        names = {f"{name}.{attempt}": name for name in left}
        found: dict[str, Timeline] = {}

        def keep(timeline: Timeline) -> None:
            name = names[timeline.request_id or ""]
            state = outcome(timeline)
            found[name] = timeline
            if state.ok:
                write_text_atomically(timeline.text or "", _answer(self.home, name))
            self.log.append({"task": name, "attempt": attempt, "ok": state.ok,
                             "reason": state.reason, "e2e_s": e2e_s(timeline)})  # fmt: skip

        run_closed_loop(
            [replace(left[name].request, request_id=key) for key, name in names.items()],
            base_url=self.base_url, concurrency=self.concurrency, timeout_s=self.timeout_s,
            on_finish=keep,
        )  # fmt: skip
        return found
