"""From steps to costs: what a fixed part, a prompt token, a sequence and a cached token cost.

The costs cannot be negative. They are fitted on relative errors, robust against single slow steps;
then all step costs are scaled so that they add up to the time that was measured, because queues
grow with the mean and not with the median.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.core.fitting import robust_nonnegative_fit
from turbo_lab.sim.calibration_steps import StepSample

LEAST_SAMPLES = 12
SLOWEST = 3.0  # times the fitted value: a step beyond it counts as that slow in the sum
KNOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class FitResult:
    """Relative errors of a fit: median and worst of single steps, and of all time together."""

    steps: int
    median: float
    p90: float
    total: float

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class StepCosts:
    """Seconds per cost, as in ``Calibration``; ``scale`` is already in them."""

    fixed_s: float
    prefill_token_s: float
    prefill_context_s: float
    context_token_s: float
    request_s: float
    decode_knots: tuple[tuple[float, float], ...]
    scale: float

    def seconds(self, sample: StepSample) -> float:
        """What a step takes by these costs."""
        knots = np.array([k for k, _ in self.decode_knots])
        slopes = [(b - a) / (high - low) for (low, a), (high, b) in pairwise(self.decode_knots)]
        costs = (self.fixed_s, self.prefill_token_s, self.prefill_context_s,
                 self.context_token_s, self.request_s, *slopes)  # fmt: skip
        return float(np.dot(_columns(sample, knots), costs))


def fit_steps(samples: Sequence[StepSample]) -> StepCosts:
    """Fit all costs. Raises UsageError where the steps cannot tell them apart.

    Needed: decode steps of one sequence and of more; prompts of two lengths on an idle engine and
    prompts right behind a step (their difference is the request's overhead); a dozen steps in all.
    """
    _check(samples)
    widest = max(s.decode_sequences for s in samples)
    seen = {s.decode_sequences for s in samples}
    knots = np.array([0, *(k for k in KNOTS if k < widest and k in seen), widest], dtype=float)
    rows = np.array([_columns(s, knots) for s in samples])
    seconds = np.array([s.seconds for s in samples])
    costs = np.array(robust_nonnegative_fit(rows, seconds))
    busy = np.array([not s.alone for s in samples])
    fitted = rows[busy] @ costs
    scale = float(np.minimum(seconds[busy], SLOWEST * fitted).sum() / fitted.sum())
    costs[[0, 1, 2, 3, *range(5, len(costs))]] *= scale
    at = np.concatenate([[0.0], np.cumsum(costs[5:] * np.diff(knots))])
    fixed, token, pair, context, request = (float(c) for c in costs[:5])
    curve = tuple((float(k), float(s)) for k, s in zip(knots, at, strict=True))
    return StepCosts(fixed, token, pair, context, request, curve, scale)


def fit_result(costs: StepCosts, samples: Sequence[StepSample]) -> FitResult:
    """Errors of these costs on steps, best on others than they were fitted on."""
    if not samples:
        raise UsageError("there are no steps to compare with")
    fitted = [costs.seconds(s) for s in samples]
    errors = sorted(abs(f - s.seconds) / s.seconds for f, s in zip(fitted, samples, strict=True))
    return FitResult(
        steps=len(samples),
        median=statistics.median(errors),
        p90=errors[int(0.9 * (len(errors) - 1))],
        total=sum(fitted) / sum(s.seconds for s in samples) - 1,
    )


def _columns(sample: StepSample, knots: np.ndarray) -> np.ndarray:
    """Fixed, P, Q, C, request, then the part of B in each stretch between two knots."""
    parts = np.clip(sample.decode_sequences - knots[:-1], 0, np.diff(knots))
    if sample.decode_sequences > knots[-1]:
        parts[-1] += sample.decode_sequences - knots[-1]
    first = (1.0, sample.prefill_tokens, sample.pairs, sample.context_tokens, float(sample.alone))
    return np.concatenate([first, parts])


def _check(samples: Sequence[StepSample]) -> None:
    decoding = {s.decode_sequences for s in samples if not s.prefill_tokens}
    alone = {s.prefill_tokens for s in samples if s.alone}
    behind = [s for s in samples if not s.alone and not s.decode_sequences]
    if len(samples) < LEAST_SAMPLES or len(decoding) < 2 or len(alone) < 2 or not behind:
        raise UsageError(
            f"{len(samples)} steps, decode batches {sorted(decoding)}, prompts on an idle engine "
            f"{sorted(alone)[:5]}, {len(behind)} prompts right behind a step: a fit needs "
            f"{LEAST_SAMPLES} steps, two batches, two prompts, and one behind a step"
        )
