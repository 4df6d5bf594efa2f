"""Speculation where not every step has a guess, and not every guess is equally long (n-gram).

Speed-up is a ratio of means over steps, not a mean of ratios: mean tokens per step over mean cost
per step. Costs are relative to one plain step of the target, as in ``estimate.speculation``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.speculation import Acceptance, expected_tokens
from turbo_lab.estimate.verification import CostOfCheck, free
from turbo_lab.metrics.percentiles import weighted_cdf


@dataclass(frozen=True)
class Proposals:
    """How many tokens a step guesses for one sequence.

    ``shares[l]``: share of a sequence's decode steps with a guess of l tokens; they sum to 1.
    """

    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what is no distribution."""
        if not self.shares or min(self.shares) < 0 or not math.isclose(math.fsum(self.shares), 1.0):
            raise UsageError(f"shares are {self.shares}; they must be at least 0 and sum to 1")

    @classmethod
    def fixed(cls, draft_tokens: int, *, share: float = 1.0) -> Proposals:
        """Guesses of one length in ``share`` of the steps, none in the others."""
        if draft_tokens < 1 or not 0 <= share <= 1:
            raise UsageError(
                f"draft_tokens {draft_tokens} must be at least 1, share {share} from 0 to 1"
            )
        return cls((1.0 - share, *[0.0] * (draft_tokens - 1), float(share)))

    @classmethod
    def from_lengths(cls, counts: Mapping[int, float]) -> Proposals:
        """From counted steps per length, those without a guess (0) included."""
        total = sum(counts.values())
        if total <= 0 or min(counts, default=-1) < 0:
            raise UsageError(f"counts are {dict(counts)}; needed: lengths from 0 up, counted steps")
        return cls(tuple(counts.get(length, 0) / total for length in range(max(counts) + 1)))

    @classmethod
    def from_counters(
        cls,
        *,
        generated_tokens: float,
        accepted_tokens: float,
        drafts: float,
        draft_tokens: float,
        requests: float = 0,
    ) -> Proposals:
        """From an engine's counters over one run.

        Each step of a sequence writes its own token beside the accepted ones, so the steps are
        ``generated - accepted``, less one per request for the step that read its prompt (leave
        ``requests`` at 0 to count those as steps without a guess). Of the lengths only the mean is
        known: it is spread over the two whole numbers around it, which is exact where the cost is
        a straight line. vLLM also counts accepted tokens that the end of a reply cuts off, so few
        long replies tell more than many short ones.
        """
        steps = generated_tokens - accepted_tokens - requests
        if drafts < 0 or steps < drafts or steps <= 0 or draft_tokens < drafts:
            raise UsageError(
                f"{generated_tokens:g} tokens, {accepted_tokens:g} accepted, {requests:g} requests "
                f"and {drafts:g} drafts of {draft_tokens:g} tokens do not fit together: there "
                "cannot be more drafts than steps, nor drafts without tokens"
            )
        if drafts == 0:
            return cls((1.0,))
        share, mean = drafts / steps, draft_tokens / drafts
        below = math.floor(mean)
        longer = mean - below
        lengths = {0: 1 - share, below: share * (1 - longer), below + 1: share * longer}
        return cls.from_lengths({length: s for length, s in lengths.items() if s or length == 0})

    @property
    def share(self) -> float:
        """Share of the steps with a guess."""
        return 1.0 - self.shares[0]

    @property
    def mean_tokens(self) -> float:
        """Mean guessed tokens per step, steps without a guess included."""
        return math.fsum(length * s for length, s in enumerate(self.shares))


def tokens_per_step(proposals: Proposals, *, acceptance: Acceptance) -> float:
    """Mean tokens that a step writes for one sequence, its own token included.

    alpha: the mean of ``expected_tokens`` over the lengths. Rates per position are an engine's, so
    they already are means over its drafts, short ones included: ``1 + share * (p_1 + ...)``.
    """
    if isinstance(acceptance, Real):
        return math.fsum(
            s * expected_tokens(acceptance, draft_tokens=length)
            for length, s in enumerate(proposals.shares)
        )
    longest = len(proposals.shares) - 1
    gain = expected_tokens(acceptance, draft_tokens=longest) - 1.0
    return 1.0 + proposals.share * gain


def step_costs(
    proposals: Proposals,
    *,
    draft_cost: float = 0.0,
    verify_cost: CostOfCheck = free,
    concurrency: int = 1,
    empty_step_cost: float = 1.0,
) -> tuple[tuple[float, float], ...]:
    """Every possible cost of one step of the whole batch, with its share of the steps.

    A batch of n sequences, each with a guess of its own length, independently: with m guessed
    tokens in all and a longest guess of L the step costs ``L c + v(m / n)``.

    Args:
        proposals: the lengths for one sequence.
        draft_cost: c, one step of the draft over the batch; 0 for n-gram lookup.
        verify_cost: v at this concurrency.
        concurrency: n, at least 1.
        empty_step_cost: cost of a step in which nobody has a guess: 1 unless it was measured (an
            engine with speculation on may lose something else, such as asynchronous scheduling).

    Raises:
        UsageError: a ``VerifyCost`` of another concurrency, or m beyond its measured points.
    """
    measured_at = getattr(verify_cost, "concurrency", concurrency)
    if concurrency < 1 or measured_at != concurrency:
        raise UsageError(
            f"concurrency is {concurrency} and verify_cost was measured at {measured_at}; "
            "give the cost of this concurrency"
        )
    return tuple(
        (
            longest * draft_cost + verify_cost(total / concurrency) if total else empty_step_cost,
            share,
        )
        for total, longest, share in _batches(proposals, concurrency)
    )


def mixed_speedup(
    proposals: Proposals,
    *,
    acceptance: Acceptance,
    draft_cost: float = 0.0,
    verify_cost: CostOfCheck = free,
    concurrency: int = 1,
    empty_step_cost: float = 1.0,
) -> float:
    """Tokens per second over those of plain decoding: mean tokens per step / mean cost per step.

    With a guess of k tokens in every step this is ``speculation.speedup``. Arguments and errors as
    in ``step_costs``; ``acceptance`` as in ``tokens_per_step``.
    """
    costs = step_costs(
        proposals, draft_cost=draft_cost, verify_cost=verify_cost, concurrency=concurrency,
        empty_step_cost=empty_step_cost,
    )  # fmt: skip
    mean_cost = math.fsum(cost * share for cost, share in costs)
    return tokens_per_step(proposals, acceptance=acceptance) / mean_cost


@dataclass(frozen=True)
class BurstGaps:
    """Waiting times of a reader, in plain steps (plain decoding: every number here is 1).

    A step writes a burst of tokens at once, then nothing until the next step ends.

    ``burst_tokens``: mean tokens per burst. ``burst_*``: time between bursts, one gap per burst.
    ``token_*``: time between tokens; all but the first of a burst come at once and count as 0.
    """

    burst_tokens: float
    burst_mean: float
    burst_p95: float
    burst_p99: float
    token_mean: float
    token_p95: float
    token_p99: float


def burst_gaps(
    proposals: Proposals,
    *,
    acceptance: Acceptance,
    draft_cost: float = 0.0,
    verify_cost: CostOfCheck = free,
    concurrency: int = 1,
    empty_step_cost: float = 1.0,
) -> BurstGaps:
    """The gaps that ``proposals`` lead to: a faster mean, and a longer wait for the next burst.

    Arguments and errors as in ``mixed_speedup``; ``token_mean`` is 1 over that speed-up.
    """
    pairs = step_costs(
        proposals, draft_cost=draft_cost, verify_cost=verify_cost, concurrency=concurrency,
        empty_step_cost=empty_step_cost,
    )  # fmt: skip
    costs, shares = [cost for cost, _ in pairs], [share for _, share in pairs]
    tokens = tokens_per_step(proposals, acceptance=acceptance)
    mean = math.fsum(cost * share for cost, share in pairs)

    def tail(p: float, *, at_once: float) -> float:
        return weighted_cdf([*costs, 0.0], [*shares, at_once], p) or 0.0

    return BurstGaps(
        tokens,
        mean, tail(95, at_once=0.0), tail(99, at_once=0.0),
        mean / tokens, tail(95, at_once=tokens - 1), tail(99, at_once=tokens - 1),
    )  # fmt: skip


def _batches(proposals: Proposals, concurrency: int) -> list[tuple[int, int, float]]:
    """(guessed tokens in all, longest guess, share) of a batch of independent sequences."""
    shares, found, below = np.array(proposals.shares), [], np.zeros(1)
    for longest in range(len(shares)):
        up_to = np.ones(1)  # distribution of the sum, nobody longer than ``longest``
        for _ in range(concurrency):
            up_to = np.convolve(up_to, shares[: longest + 1])
        exactly = up_to.copy()
        exactly[: len(below)] -= below
        found += [(m, longest, float(s)) for m, s in enumerate(exactly) if s > 0]
        below = up_to
    return found
