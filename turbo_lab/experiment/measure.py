"""Send the requests of a run, write each result down at once, and stop when it makes no sense."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from turbo_lab.client.load import NOT_SENT, Item, run_closed_loop, run_open_loop
from turbo_lab.client.stream import Target
from turbo_lab.core.errors import RecordError, TurboLabError
from turbo_lab.experiment import ask
from turbo_lab.experiment.plan import BenchPlan
from turbo_lab.experiment.progress import Progress
from turbo_lab.experiment.run_folder import is_lost, request_row
from turbo_lab.experiment.secrets import hide_key
from turbo_lab.metrics.definitions import outcome
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.records.journal import Journal
from turbo_lab.workload.conversation import own_requests

LEAST_IN_A_ROW = 16


class StoppedError(TurboLabError):
    """The run was ended early on purpose; the message says why."""


@dataclass
class Watch:
    """Counts failures in a row: a server that is gone or never answers must not cost hours."""

    limit: int
    target: Target
    in_a_row: int = 0

    def see(self, timeline: Timeline) -> None:
        """Raise StoppedError when nothing has answered ``limit`` times in a row."""
        silent = is_lost(timeline) or "timed out" in (timeline.error or "")
        self.in_a_row = self.in_a_row + 1 if silent else 0
        if self.in_a_row < self.limit:
            return
        if is_lost(timeline) and ask.reachable(self.target, timeout_s=1.0):
            self.in_a_row = 0  # It came back: a restart behind a balancer.
            return
        raise StoppedError(
            f"{self.in_a_row} requests in a row got no answer: {hide_key(timeline.error)}"
        )


@dataclass
class Writer:
    """Takes each finished request: journal, progress, watch. ``how`` is how the session ended."""

    journal: Journal
    progress: Progress
    watch: Watch
    numbers: dict[str, int]
    how: str = "finished"
    problem: TurboLabError | None = field(default=None, repr=False)

    def take(self, timeline: Timeline) -> None:
        """Called in the client's loop as each request is complete."""
        assert timeline.request_id is not None
        self.journal.append(request_row(self.numbers[timeline.request_id], timeline))
        self.progress.step(failed=not outcome(timeline).ok)
        if not (timeline.error or "").startswith(NOT_SENT):
            self.watch.see(timeline)


def send_all(
    base_url: str,
    *,
    plan: BenchPlan,
    requests: Sequence[Item],
    missing: Sequence[int],
    journal: Journal,
    progress: Progress,
) -> Writer:
    """Measure the requests with these numbers (whole conversations, where there are turns).

    Ends early, with the reason in ``how``, when the server is gone, the disk is full or the user
    interrupts; ``problem`` then holds the error to raise once the record is written.
    """
    target = Target(base_url, timeout_s=plan.timeout_s)
    watch = Watch(max(LEAST_IN_A_ROW, 2 * (plan.concurrency or 0)), target)
    numbers = {r.request_id: i for i, r in enumerate(own_requests(requests)) if r.request_id}
    writer = Writer(journal, progress, watch, numbers)
    starts = sorted({i // plan.workload.turns for i in missing})
    try:
        _loop(base_url, plan, [requests[i] for i in starts], starts, writer.take)
    except KeyboardInterrupt:
        writer.how = "interrupted"
    except StoppedError as error:
        writer.how, writer.problem = f"stopped: {error}", error
    except RecordError as error:
        writer.how, writer.problem = f"stopped: {error}", error
    with contextlib.suppress(RecordError):
        journal.append({"kind": "end", "how": writer.how})
        journal.sync()
    return writer


def _loop(
    base_url: str,
    plan: BenchPlan,
    chosen: Sequence[Item],
    starts: Sequence[int],
    take: Callable[[Timeline], None],
) -> None:
    schedule = plan.schedule_s()
    if schedule is None:
        run_closed_loop(
            chosen, base_url=base_url, concurrency=plan.concurrency or 1,
            timeout_s=plan.timeout_s, warmup=plan.warmup, retries=plan.retries, on_finish=take,
        )  # fmt: skip
        return
    times = [schedule[i] for i in starts]  # After a resume the rest keeps its gaps.
    run_open_loop(
        chosen, base_url=base_url, schedule_s=[t - times[0] for t in times],
        timeout_s=plan.timeout_s, warmup=plan.warmup, retries=plan.retries, on_finish=take,
    )  # fmt: skip
