"""Paired differences: the same text, the same prompts, two configurations, one interval.

Pairing matters: prompts differ far more from each other than two caches do on one prompt. Units
(passages, blocks of tokens, prompts) are resampled, both sides of a unit always together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.experiment.bootstrap import CONFIDENCE, RESAMPLES

LEAST_UNITS = 5


@dataclass(frozen=True)
class PairedDifference:
    """Mean of (candidate - reference) over units, and its percentile-bootstrap interval.

    ``reference`` and ``candidate`` are the two means; the unit is the metric's own.
    """

    mean: float
    low: float
    high: float
    reference: float
    candidate: float
    units: int

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends."""
        return self.low, self.high

    @property
    def shown(self) -> bool:
        """True when the interval leaves zero out: a difference that these units show."""
        return self.low > 0 or self.high < 0

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {**asdict(self), "shown": self.shown}


def paired_difference(
    reference: Sequence[float],
    candidate: Sequence[float],
    *,
    weights: Sequence[float] | None = None,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> PairedDifference:
    """Bootstrap of ``sum w (b - a) / sum w`` over units.

    Args:
        reference, candidate: one value per unit, in the same order.
        weights: size of each unit (its tokens); equal by default.
        confidence: of the interval.
        resamples: how often the units are drawn again, with replacement.
        seed: of the draw.

    Raises:
        UsageError: sides of different lengths, or weights that are not positive.
        UnmeasuredError: fewer than five units; an interval over them would say nothing.
    """
    import numpy as np

    if len(reference) != len(candidate):
        raise UsageError(f"{len(reference)} reference values and {len(candidate)} candidate values")
    if len(reference) < LEAST_UNITS:
        raise UnmeasuredError(f"{len(reference)} units; an interval needs at least {LEAST_UNITS}")
    a, b = np.asarray(reference, dtype=float), np.asarray(candidate, dtype=float)
    w = np.ones(len(a)) if weights is None else np.asarray(weights, dtype=float)
    if w.shape != a.shape or not (w > 0).all():
        raise UsageError("weights must be positive, one for each unit")
    draws = np.random.default_rng(seed).integers(0, len(a), (resamples, len(a)))
    drawn = (w * (b - a))[draws].sum(axis=1) / w[draws].sum(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    left, right = float(np.average(a, weights=w)), float(np.average(b, weights=w))
    mean = float(np.average(b - a, weights=w))
    return PairedDifference(mean, float(low), float(high), left, right, len(a))
