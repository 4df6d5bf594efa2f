"""Who sits in the batch at which step, and what the step-time model makes of it.

A reply of n tokens takes n steps: the first reads its prompt and writes its first token. Nothing is
timed in a ``Schedule``: it holds on every machine. ``play`` puts seconds to its steps.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.fit import StepModel


@dataclass(frozen=True)
class Job:
    """One request. ``priority``: lower goes first, as in vLLM; equal ones keep their order."""

    prompt_tokens: int
    output_tokens: int
    priority: int = 0

    def __post_init__(self) -> None:
        """Refuse a job without work."""
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise UsageError(f"{self}: prompt and output need at least one token each")


@dataclass(frozen=True)
class Span:
    """The steps of one job: from ``first`` up to, not including, ``end``."""

    seat: int
    first: int
    end: int


@dataclass(frozen=True)
class JobTimes:
    """Seconds from the start: seat taken (or asked), first token, last token."""

    start_s: float
    first_s: float
    end_s: float


@dataclass(frozen=True)
class Schedule:
    """One span per job, in the order of ``jobs``."""

    jobs: tuple[Job, ...]
    spans: tuple[Span, ...]
    seats: int

    @property
    def steps(self) -> int:
        """Steps until the last job has ended."""
        return max(span.end for span in self.spans)

    @property
    def idle_share(self) -> float:
        """Seat-steps without a token over all seat-steps: ``1 - sum(n) / (seats * steps)``."""
        return 1 - sum(job.output_tokens for job in self.jobs) / (self.seats * self.steps)


def continuous(jobs: Sequence[Job], *, seats: int) -> Schedule:
    """A freed seat goes at the next step to the first job that waits (all are there at step 0)."""
    _check(jobs, seats)
    free = [(0, seat) for seat in range(seats)]  # (free from step, seat)
    spans: dict[int, Span] = {}
    for index in sorted(range(len(jobs)), key=lambda i: (jobs[i].priority, i)):
        first, seat = heapq.heappop(free)
        spans[index] = Span(seat, first, first + jobs[index].output_tokens)
        heapq.heappush(free, (spans[index].end, seat))
    return Schedule(tuple(jobs), tuple(spans[i] for i in range(len(jobs))), seats)


def static_batches(jobs: Sequence[Job], *, seats: int) -> Schedule:
    """Batches in order; the next begins when the longest reply of the last has ended."""
    _check(jobs, seats)
    spans: list[Span] = []
    first = 0
    for start in range(0, len(jobs), seats):
        batch = jobs[start : start + seats]
        spans += [Span(s, first, first + job.output_tokens) for s, job in enumerate(batch)]
        first += max(job.output_tokens for job in batch)
    return Schedule(tuple(jobs), tuple(spans), seats)


def _check(jobs: Sequence[Job], seats: int) -> None:
    if not jobs or seats < 1:
        raise UsageError(f"{len(jobs)} jobs on {seats} seats: both must be at least 1")


def play(schedule: Schedule, *, model: StepModel) -> tuple[JobTimes, ...]:
    """Seconds of every job under the step-time model: each step holds decodes and prompts mixed.

    All jobs are there at 0. Network and client are not in it.
    """
    decoding: list[list[int]] = [[] for _ in range(schedule.steps)]
    reading: list[list[tuple[int, int]]] = [[] for _ in range(schedule.steps)]
    for job, span in zip(schedule.jobs, schedule.spans, strict=True):
        reading[span.first].append((job.prompt_tokens, 0))
        for step in range(span.first + 1, span.end):
            decoding[step].append(job.prompt_tokens + step - span.first)
    durations = (
        model.mixed_step_s(decode_contexts=d, prefill=p)
        for d, p in zip(decoding, reading, strict=True)
    )
    edges = list(accumulate(durations, initial=0.0))
    return tuple(JobTimes(edges[s.first], edges[s.first + 1], edges[s.end]) for s in schedule.spans)


@dataclass
class _Seat:
    """A request on its seat, while a closed loop is played."""

    asked_s: float
    left: int
    first_s: float = 0.0
    written: int = 0


def play_users(
    job: Job, *, users: int, rounds: int, seats: int, model: StepModel
) -> list[JobTimes]:
    """A closed loop, step by step: every user asks ``rounds`` times, each time after the answer.

    Who asks while a step runs is known to the engine when it ends; an idle engine starts a step for
    the first that asks, so the others wait for it. Seconds of each request, ``start_s`` is when it
    was asked, in the order of completion. Network and client are not in it.
    """
    if min(users, rounds, seats) < 1:
        raise UsageError(f"{users} users, {rounds} rounds, {seats} seats: all must be at least 1")
    coming, waiting = [_Seat(0.0, rounds) for _ in range(users)], list[_Seat]()
    seated, found, now_s = list[_Seat](), list[JobTimes](), 0.0
    while coming or waiting or seated:
        if not waiting and not seated:
            waiting.append(coming.pop(0))
        free = seats - len(seated)
        new, waiting = waiting[:free], waiting[free:]
        now_s += model.mixed_step_s(
            decode_contexts=[job.prompt_tokens + s.written for s in seated],
            prefill=[(job.prompt_tokens, 0)] * len(new),
        )
        waiting, seated = waiting + coming, seated + new
        for seat in seated:
            seat.first_s, seat.written = seat.first_s or now_s, seat.written + 1
        done = [s for s in seated if s.written == job.output_tokens]
        seated = [s for s in seated if s.written < job.output_tokens]
        found += [JobTimes(s.asked_s, s.first_s, now_s) for s in done]
        coming = [_Seat(now_s, s.left - 1) for s in done if s.left > 1]
    return found


def chunks(tokens: int, *, size: int) -> list[tuple[int, int]]:
    """A prompt cut into (new, past) pieces of at most ``size`` tokens, in order."""
    if tokens < 1 or size < 1:
        raise UsageError(f"{tokens} tokens in pieces of {size}: both must be at least 1")
    return [(min(size, tokens - past), past) for past in range(0, tokens, size)]


def prompt_steps_s(
    prompt_tokens: int, *, chunk: int, decode_contexts: Sequence[int], model: StepModel
) -> list[float]:
    """Seconds of the steps in which a prompt is read beside running decodes.

    Their maximum is the longest pause of a running reply, their sum the new request's time to first
    token. ``chunk`` at least ``prompt_tokens``: one step.
    """
    return [
        model.mixed_step_s(decode_contexts=[c + i for c in decode_contexts], prefill=[piece])
        for i, piece in enumerate(chunks(prompt_tokens, size=chunk))
    ]
