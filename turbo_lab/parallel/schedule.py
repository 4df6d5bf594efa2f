"""Pipeline schedules as data: which stage does what in which order, and the timetable of that.

A schedule is an order of tasks for each stage, nothing more. The timetable follows from the
durations: a task starts as soon as its stage is free and its input has arrived. The same orders
are executed for real by ``turbo_lab.parallel.pipeline``; the closed forms for equal stages are in
``turbo_lab.estimate.pipeline``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from turbo_lab.core.errors import UsageError, did_you_mean

Kind = Literal["forward", "backward"]
SCHEDULES = ("GPipe", "1F1B")


@dataclass(frozen=True, order=True)
class Task:
    """One micro-batch on one stage. ``step``: the decode step, 0 in training."""

    stage: int
    micro_batch: int
    kind: Kind = "forward"
    step: int = 0


@dataclass(frozen=True)
class Slot:
    """A task with its time. Seconds from the start of the run."""

    task: Task
    start_s: float
    end_s: float


Order = tuple[tuple[Task, ...], ...]  # for each stage its tasks in order
Duration = Callable[[Task], float]


def training_order(schedule: str, *, stages: int, micro_batches: int) -> Order:
    """Forward and backward of every micro-batch, for each stage in order.

    ``GPipe``: all forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965).
    ``1F1B``: after ``p - 1 - s`` forwards to fill the pipeline, one forward and one backward in
    turn; same bubble, but only ``min(m, p - s)`` activations kept instead of m (Narayanan et al.
    2021, arXiv:2104.04473). Raises UsageError for unknown names and counts below 1.
    """
    if schedule not in SCHEDULES:
        raise UsageError(f"schedule is {schedule!r}.{did_you_mean(schedule, list(SCHEDULES))}")
    _check(stages=stages, micro_batches=micro_batches)
    rows = []
    for stage in range(stages):
        forwards = [Task(stage, m, "forward") for m in range(micro_batches)]
        backwards = [Task(stage, m, "backward") for m in range(micro_batches)]
        ahead = micro_batches if schedule == "GPipe" else min(micro_batches, stages - 1 - stage)
        row = forwards[:ahead]
        for number, forward in enumerate(forwards[ahead:]):
            row += [forward, backwards[number]]
        rows.append(tuple(row + backwards[micro_batches - ahead :]))
    return tuple(rows)


def decode_order(*, stages: int, micro_batches: int, steps: int) -> Order:
    """Inference: every stage takes the micro-batches in turn, step after step.

    Step k of a micro-batch needs its token of step k-1 from the last stage, so fewer micro-batches
    than stages leave stages idle in every step, not only at the start.
    """
    _check(stages=stages, micro_batches=micro_batches, steps=steps)
    return tuple(
        tuple(
            Task(stage, m, "forward", step) for step in range(steps) for m in range(micro_batches)
        )
        for stage in range(stages)
    )


def needs(task: Task, *, stages: int) -> list[Task]:
    """The tasks whose results this one uses."""
    stage, batch, step = task.stage, task.micro_batch, task.step
    if task.kind == "backward":
        own = Task(stage, batch, "forward", step)
        return [own, Task(stage + 1, batch, "backward", step)] if stage + 1 < stages else [own]
    if stage:
        return [Task(stage - 1, batch, "forward", step)]
    return [Task(stages - 1, batch, "forward", step - 1)] if step else []


def timetable(
    order: Order, *, duration: Duration | Mapping[str, float], transfer_s: float = 0.0
) -> list[Slot]:
    """When each task runs; seconds, the first task starts at 0.

    Args:
        order: tasks of each stage, in order.
        duration: seconds of a task, or seconds for ``forward`` and ``backward``.
        transfer_s: seconds between two stages.

    Raises UsageError when the orders block each other, naming the tasks that wait.
    """
    seconds = duration if callable(duration) else lambda task: duration[task.kind]
    stages = len(order)
    done: dict[Task, float] = {}
    slots: list[Slot] = []
    free, position = [0.0] * stages, [0] * stages
    while True:
        moved = False
        for stage, row in enumerate(order):
            while position[stage] < len(row):
                task = row[position[stage]]
                inputs = needs(task, stages=stages)
                if any(other not in done for other in inputs):
                    break
                arrivals = [done[o] + (transfer_s if o.stage != stage else 0.0) for o in inputs]
                start_s = max([free[stage], *arrivals])
                done[task] = free[stage] = start_s + seconds(task)
                slots.append(Slot(task, start_s, done[task]))
                position[stage] += 1
                moved = True
        if not moved:
            break
    waiting = [row[at] for row, at in zip(order, position, strict=True) if at < len(row)]
    if waiting:
        raise UsageError(f"the stages block each other; these tasks wait for ever: {waiting}")
    return sorted(slots, key=lambda slot: (slot.start_s, slot.task))


def typical_durations(slots: Sequence[Slot]) -> Duration:
    """Seconds of a task from a measured run: the median of its stage, kind, and prefill or not.

    So one short run predicts the timetable of any other number of micro-batches.
    """
    seconds: dict[tuple[int, str, bool], list[float]] = {}
    for slot in slots:
        seconds.setdefault(_sort(slot.task), []).append(slot.end_s - slot.start_s)
    typical = {key: median(values) for key, values in seconds.items()}
    return lambda task: typical[_sort(task)]


def slots_from(rows: Iterable[Sequence[Any]]) -> list[Slot]:
    """Slots from (stage, micro-batch, kind, step, start_s, end_s), as the jobs return them."""
    return [Slot(Task(*row[:4]), *row[4:]) for row in rows]


def rows_from(slots: Iterable[Slot]) -> list[list[Any]]:
    """The inverse of ``slots_from``: plain lists, as records and figures take them."""
    return [
        [s.task.stage, s.task.micro_batch, s.task.kind, s.task.step, s.start_s, s.end_s]
        for s in slots
    ]


def idle_shares(slots: Sequence[Slot], *, stages: int) -> list[float]:
    """For each stage the share of the whole run in which it does nothing."""
    start_s, end_s = min(s.start_s for s in slots), max(s.end_s for s in slots)
    busy = [0.0] * stages
    for slot in slots:
        busy[slot.task.stage] += slot.end_s - slot.start_s
    return [1.0 - stage_busy / (end_s - start_s) for stage_busy in busy]


def bubble_share(slots: Sequence[Slot], *, stages: int) -> float:
    """Idle share of all stages together."""
    return sum(idle_shares(slots, stages=stages)) / stages


def decode_bubble(*, stages: int, micro_batches: int, steps: int) -> float:
    """Bubble share of decoding with equal stages and no transfer time.

    The last task ends after ``(k-1)*max(m, p) + m + p - 1`` stage times, ``m*k`` of them are work.
    For many steps: 0 with m >= p, else ``1 - m/p``.
    """
    _check(stages=stages, micro_batches=micro_batches, steps=steps)
    whole = (steps - 1) * max(micro_batches, stages) + micro_batches + stages - 1
    return 1.0 - micro_batches * steps / whole


def most_kept(row: Sequence[Task]) -> int:
    """Largest number of micro-batches whose activations a stage keeps at once for the backward."""
    kept = most = 0
    for task in row:
        kept += 1 if task.kind == "forward" else -1
        most = max(most, kept)
    return most


def _sort(task: Task) -> tuple[int, str, bool]:
    return task.stage, task.kind, task.step == 0


def _check(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"{name} is {count}; allowed: whole numbers from 1.")
