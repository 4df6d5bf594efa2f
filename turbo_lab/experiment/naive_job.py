"""A batch job as it is often written, kept to measure what it loses. For real work: ``batch_job``.

Everything is sent at once, with a time-out that fits one user. A failed request is sent again at
once, whatever the reason. An answer goes to a file named after the second in which it came, and all
log lines go to one file without saying whose they are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from turbo_lab.client.load import run_closed_loop
from turbo_lab.metrics.definitions import outcome
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.workload.request import Request


@dataclass(frozen=True)
class NaiveReport:
    """``answered`` requests of ``tasks``, in ``files`` files, after ``sent`` requests."""

    tasks: int
    answered: int
    files: int
    sent: int
    seconds: float

    @property
    def overwritten(self) -> int:
        """Answers that came and are gone: another one was written over them."""
        return self.answered - self.files


def run_naive(
    requests: Sequence[Request],
    *,
    base_url: str,
    folder: str | Path,
    timeout_s: float,
    attempts: int = 2,
) -> NaiveReport:
    """Send all at once; repeat what failed at once. See the module for what is wrong with it."""
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    start, sent, answered = time.monotonic(), 0, 0
    left = [replace(r, request_id=f"n{i}") for i, r in enumerate(requests)]

    def keep(timeline: Timeline) -> None:
        ok = outcome(timeline).ok
        with (home / "job.log").open("a") as log:
            log.write("finished\n" if ok else "failed, sending again\n")
        if ok:
            (home / f"answer-{time.strftime('%H%M%S')}.txt").write_text(timeline.text or "")

    for _ in range(attempts):
        if not left:
            break
        found = run_closed_loop(left, base_url=base_url, concurrency=len(left),
                                timeout_s=timeout_s, on_finish=keep)  # fmt: skip
        sent += len(left)
        good = [outcome(t).ok for t in found]
        answered += sum(good)
        left = [r for r, ok in zip(left, good, strict=True) if not ok]
    files = len(list(home.glob("answer-*.txt")))
    return NaiveReport(len(requests), answered, files, sent, time.monotonic() - start)
