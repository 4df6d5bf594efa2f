"""Requests in a lesson, with what the engine itself counted while they ran."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.course.lesson import Lesson
from turbo_lab.course.streams import timelines
from turbo_lab.engines.metrics_page import sum_over_labels
from turbo_lab.metrics.definitions import outcome
from turbo_lab.metrics.timeline import Timeline

COUNTERS = MappingProxyType(
    {"steps": "vllm:iteration_tokens_total_count", "preemptions": "vllm:num_preemptions_total"}
)
SETTLE_S = 0.3  # The engine writes its counters a moment after the last token has left.


@dataclass(frozen=True)
class Counted:
    """One run. ``timelines`` is empty and ``counts`` too where it is unmeasured."""

    name: str
    timelines: list[Timeline] = field(repr=False)
    counts: Mapping[str, float]

    def replies(self) -> list[Timeline]:
        """The timelines, every one complete. Raises UnmeasuredError otherwise."""
        bad = [outcome(t).reason for t in self.timelines if not outcome(t).ok]
        if bad or not self.timelines:
            why = (
                f"{len(bad)} of {len(self.timelines)} requests failed: {bad[0]}" if bad else "none"
            )
            raise UnmeasuredError(f"run {self.name} has no complete set of replies ({why})")
        return self.timelines

    def seconds(self, *, groups_of: int | None = None) -> float:
        """From the first request's sending to the last one's end. Raises UnmeasuredError.

        ``groups_of``: requests that were sent in groups of so many, one group after the other; the
        client's own pauses between the groups are left out.
        """
        runs = self.replies()
        size = groups_of or len(runs)
        groups = [runs[i : i + size] for i in range(0, len(runs), size)]
        return sum(
            max(t.closed_s or 0.0 for t in g) - min(t.sent_s or 0.0 for t in g) for g in groups
        )

    def count(self, what: str) -> float:
        """How far one of the engine's counters went up, ``steps`` for example.

        Raises UnmeasuredError where the engine does not tell.
        """
        if what not in self.counts:
            raise UnmeasuredError(f"the engine told no {what} for run {self.name}")
        return self.counts[what]


def counted(
    lab: Lesson,
    name: str,
    send: Callable[[], Sequence[Timeline]],
    *,
    server: Any,
    counters: Mapping[str, str] = COUNTERS,
) -> Counted:
    """Observe requests under ``name`` and the engine's counters under ``name_counts``.

    ``send()`` runs only in a live mode; others must not use the server meanwhile. ``counters``: our
    word to the name on ``/metrics``.
    """
    before: dict[str, float] = {}

    def measured() -> Sequence[Timeline]:
        before.update(_read(server, counters))
        return send()

    runs = timelines(lab, name, measured)

    def growth() -> dict[str, float]:
        if not runs:
            raise UnmeasuredError(f"run {name} has no requests")
        time.sleep(SETTLE_S)
        after = _read(server, counters)
        return {what: after[what] - before[what] for what in before if what in after}

    return Counted(name, runs, lab.observe(f"{name}_counts", growth) or {})


def _read(server: Any, counters: Mapping[str, str]) -> dict[str, float]:
    """Sums of the counters over their labels; one that the engine does not publish is left out."""
    sums = sum_over_labels(server.metrics())
    return {what: sums[counter] for what, counter in counters.items() if counter in sums}
