"""A closed-loop run in a lesson, with the server's own account of the same requests beside it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.course.lesson import Lesson
from turbo_lab.course.streams import timelines
from turbo_lab.engines.request_times import RequestTimes, read_times, split_e2e, times_since
from turbo_lab.metrics import definitions
from turbo_lab.metrics.summary import Summary, summarize
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.workload.request import Request

COUNTING_PATIENCE_S = 5.0  # How long the server may take to count its last request.


@dataclass(frozen=True)
class Load:
    """One run. ``timelines`` is empty and ``times`` None where it is unmeasured.

    ``concurrency`` is what the client kept in flight.
    """

    name: str
    concurrency: int
    timelines: list[Timeline] = field(repr=False)
    times: RequestTimes | None = field(repr=False)

    def summary(self, *, convention: str = "turbo") -> Summary:
        """The run's metrics under one convention."""
        return summarize(self.timelines, convention=convention)

    def parts_s(self) -> Mapping[str, float]:
        """Mean seconds per part of a request. Raises UnmeasuredError without both accounts."""
        if self.times is None:
            raise UnmeasuredError(f"the server gave no account of run {self.name}")
        return split_e2e(self.times, self.timelines)

    def row(self) -> dict[str, float | None]:
        """The line of a baseline table: the three columns, then the numbers they belong to."""
        found = self.summary()
        return {
            "input [tokens]": _median(definitions.input_tokens(t) for t in self.timelines),
            "output [tokens]": _median(definitions.output_tokens(t) for t in self.timelines),
            "concurrency": self.concurrency,
            "TTFT P50 [s]": found.ttft_s.median,
            "TPOT P50 [s]": found.tpot_s.median,
            "throughput [tok/s]": found.output_rate_tok_s.value,
        }

    def late_starters(self) -> int:
        """Requests whose first text came after another request had its last.

        Raises UnmeasuredError when a request has no text: its place in the order is unknown.
        """
        replies = [t.visible() for t in self.timelines]
        if not replies or not all(replies):
            answered = sum(1 for chunks in replies if chunks)
            raise UnmeasuredError(f"{answered} of {len(replies)} requests were answered")
        first_end_s = min(chunks[-1].t_s for chunks in replies)
        return sum(1 for chunks in replies if chunks[0].t_s > first_end_s)


def _median(counts: Iterable[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return float(statistics.median(known)) if known else None


def per_run(loads: Sequence[Load], *, convention: str = "turbo") -> dict[str, list[float | None]]:
    """Median TTFT and TPOT in s and throughput in tok/s, one per run; None where unmeasured."""
    found = [load.summary(convention=convention) for load in loads]
    return {
        "TTFT": [s.ttft_s.median for s in found],
        "TPOT": [s.tpot_s.median for s in found],
        "throughput": [s.output_rate_tok_s.value for s in found],
    }


def pooled(loads: Sequence[Load], name: str) -> list[float]:
    """The samples of one metric from all runs together."""
    return [value for load in loads for value in load.summary()[name].values]


def closed_loop(
    lab: Lesson,
    name: str,
    requests: Callable[[], Sequence[Request]],
    *,
    server: Any,
    concurrency: int,
) -> Load:
    """Observe a closed loop under ``name`` and the server's times under ``name_server``.

    ``requests()`` is called only in a live mode. No warm-up is sent: it would be in the server's
    account. Warm the server up before.
    """
    before: list[RequestTimes] = []

    def send() -> list[Timeline]:
        wanted = list(requests())
        before.append(read_times(server))
        return run_closed_loop(wanted, base_url=server.base_url, concurrency=concurrency)

    runs = timelines(lab, name, send)

    def account() -> dict[str, Any]:
        if not before or not runs:
            raise UnmeasuredError(f"run {name} has no requests")
        return times_since(
            server, before[0], requests=len(runs), patience_s=COUNTING_PATIENCE_S
        ).to_dict()

    found = lab.observe(f"{name}_server", account)
    return Load(name, concurrency, runs, RequestTimes(**found) if found else None)
