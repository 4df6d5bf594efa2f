"""Timelines in a lesson: observed live, replayed from the record, an empty list when unmeasured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.course.lesson import Lesson
from turbo_lab.metrics.timeline import Timeline


def timelines(lab: Lesson, name: str, send: Callable[[], Sequence[Timeline]]) -> list[Timeline]:
    """Observe requests under ``name``: ``send()`` runs live, the record answers in replay.

    Returns the timelines, failed requests included (``summarize`` counts them as failures). When
    nothing could be sent, or every request failed, the reason is printed and stored, and the list
    is empty.
    """

    def observed() -> list[dict[str, Any]]:
        runs = list(send())
        reasons = {run.error for run in runs if run.error}
        if runs and all(run.error for run in runs):
            raise UnmeasuredError(f"all {len(runs)} requests failed: {'; '.join(sorted(reasons))}")
        return [run.validate().to_dict() for run in runs]

    return [Timeline.from_dict(raw) for raw in lab.observe(name, observed) or []]
