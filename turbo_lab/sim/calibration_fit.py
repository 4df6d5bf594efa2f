"""From steps to costs: what a fixed part, a prompt token, a sequence and a cached token cost.

The costs cannot be negative, and they are fitted on relative errors. Other load on the machine only
ever makes a step slower, sometimes for seconds and three times as slow, so the fit begins at the
fast side (a low quantile) and then keeps the calm steps: those that take less than ``CALM`` times
what is fitted. At last all step costs are scaled so that the calm steps add up to their measured
time, because queues grow with the mean and not with the median. How much time went into steps that
were not calm is told (``disturbed``).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.core.fitting import nonnegative_fit, robust_nonnegative_fit
from turbo_lab.sim.calibration_steps import StepSample

LEAST_SAMPLES = 12
FAST_SIDE = 0.25  # of the steps lie below the first fit
CALM = 1.5
ROUNDS, SMALLEST_ERROR = 30, 0.005
KNOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class FitResult:
    """Relative errors of a fit: median and P90 of single steps, and of all time together.

    ``calm_median``: of the steps that take less than ``CALM`` times what is fitted.
    """

    steps: int
    median: float
    p90: float
    total: float
    calm_median: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class StepCosts:
    """Seconds per cost, as in ``Calibration``; ``scale`` is already in them.

    ``disturbed``: share of the measured time in steps that were not calm.
    """

    fixed_s: float
    prefill_token_s: float
    prefill_context_s: float
    context_token_s: float
    request_s: float
    decode_knots: tuple[tuple[float, float], ...]
    scale: float
    disturbed: float

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
    calm = seconds < CALM * (rows @ _fast_side(rows, seconds))
    costs = np.array(robust_nonnegative_fit(rows[calm], seconds[calm]))
    busy = calm & ~np.array([s.alone for s in samples])
    scale = float(seconds[busy].sum() / (rows[busy] @ costs).sum())
    costs[[0, 1, 2, 3, *range(5, len(costs))]] *= scale
    at = np.concatenate([[0.0], np.cumsum(costs[5:] * np.diff(knots))])
    fixed, token, pair, context, request = (float(c) for c in costs[:5])
    curve = tuple((float(k), float(s)) for k, s in zip(knots, at, strict=True))
    disturbed = float(seconds[~calm].sum() / seconds.sum())
    return StepCosts(fixed, token, pair, context, request, curve, scale, disturbed)


def _fast_side(rows: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Costs of a low quantile of the steps: errors above count less than errors below."""
    weights = np.ones(len(seconds))
    costs = np.zeros(rows.shape[1])
    for _ in range(ROUNDS):
        costs = nonnegative_fit(rows, seconds, weights=weights)
        errors = 1 - rows @ costs / seconds
        tilt = np.where(errors > 0, FAST_SIDE, 1 - FAST_SIDE)
        weights = tilt / np.maximum(np.abs(errors), SMALLEST_ERROR)
    return costs


def fit_result(costs: StepCosts, samples: Sequence[StepSample]) -> FitResult:
    """Errors of these costs on steps, best on others than they were fitted on."""
    if not samples:
        raise UsageError("there are no steps to compare with")
    fitted = [costs.seconds(s) for s in samples]
    pairs = list(zip(fitted, samples, strict=True))
    errors = sorted(abs(f - s.seconds) / s.seconds for f, s in pairs)
    calm = [abs(f - s.seconds) / s.seconds for f, s in pairs if s.seconds < CALM * f]
    return FitResult(
        steps=len(samples),
        median=statistics.median(errors),
        p90=errors[int(0.9 * (len(errors) - 1))],
        total=sum(fitted) / sum(s.seconds for s in samples) - 1,
        calm_median=statistics.median(calm) if calm else None,
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
