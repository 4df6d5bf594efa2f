"""How large a trap is on a known engine: what a method that does nothing could claim.

Three traps have a size that follows from the step-time model: a baseline that keeps whole batches,
percentiles over those requests that were not given up, and (``ClosedLoop`` itself) another number
of users. All times are seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.estimate.batching import Job, continuous, play, static_batches
from turbo_lab.estimate.fit import StepModel
from turbo_lab.metrics.percentiles import percentile


def weak_baseline_factor(
    replies: Sequence[int], *, prompt_tokens: int, seats: int, model: StepModel
) -> float:
    """Seconds of whole batches over those of continuous batching, for the same replies.

    ``replies``: output tokens of each request, in order. 1 where all are equal and fill the seats:
    the spread of lengths makes the factor. Source: Yu et al., Orca, OSDI 2022.
    """
    jobs = [Job(prompt_tokens, tokens) for tokens in replies]
    whole, flowing = (
        max(times.end_s for times in play(way(jobs, seats=seats), model=model))
        for way in (static_batches, continuous)
    )
    return whole / flowing


def weak_baseline_steps(replies: Sequence[int], *, seats: int) -> float:
    """Engine steps of whole batches over those of continuous batching, whatever a step costs."""
    jobs = [Job(1, tokens) for tokens in replies]
    return static_batches(jobs, seats=seats).steps / continuous(jobs, seats=seats).steps


def crowd_latencies_s(
    count: int, *, prompt_tokens: int, output_tokens: int, seats: int, model: StepModel
) -> list[float]:
    """End-to-end seconds of ``count`` equal requests that are sent at the same moment, ascending.

    They are served in waves of ``seats``. What lies outside the engine (network, client, API
    process) is added to each.
    """
    jobs = [Job(prompt_tokens, output_tokens)] * count
    outside_s = max(0.0, model.request_s - model.step_s)
    times = play(continuous(jobs, seats=seats), model=model)
    return sorted(one.end_s + outside_s for one in times)


def timeout_between(latencies_s: Sequence[float], *, answered: int) -> float:
    """A time-out under which just ``answered`` of these requests are answered.

    The geometric mean of the last answered and the first lost one, so that the machine may be
    slower or faster by the same factor. Raises UsageError where it cannot tell the two apart.
    """
    ordered = sorted(latencies_s)
    if not 1 <= answered < len(ordered):
        raise UsageError(f"answered is {answered}; allowed: 1 to {len(ordered) - 1}")
    last, first_lost = ordered[answered - 1], ordered[answered]
    if last >= first_lost:
        raise UsageError(f"requests {answered} and {answered + 1} end together at {last:.3g} s")
    return sqrt(last * first_lost)


@dataclass(frozen=True)
class Survivors:
    """One run, read in two ways. ``survivors_s`` is None where every request was given up."""

    sent: int
    lost: int
    all_s: float
    survivors_s: float | None

    @property
    def flattery(self) -> float:
        """The percentile of all requests over that of the survivors; 1 where nothing was lost.

        Raises UnmeasuredError where nobody survived.
        """
        if self.survivors_s is None:
            raise UnmeasuredError(f"all {self.sent} requests were given up")
        return self.all_s / self.survivors_s


def survivors(latencies_s: Sequence[float], *, timeout_s: float, p: float) -> Survivors:
    """The p-th percentile of all requests, and of those that ended within ``timeout_s``.

    ``latencies_s``: of every request, waited for to its end. Raises UnmeasuredError without any.
    """
    if not latencies_s:
        raise UnmeasuredError("there are no latencies to read")
    kept = [value for value in latencies_s if value <= timeout_s]
    whole = percentile(latencies_s, p)
    assert whole is not None
    return Survivors(len(latencies_s), len(latencies_s) - len(kept), whole, percentile(kept, p))
