"""Bootstrap interval of the relative difference of two medians."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """(median B - median A) / median A, and its percentile-bootstrap interval."""

    effect: float
    low: float
    high: float
    median_a: float
    median_b: float

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends."""
        return self.low, self.high


def median_difference(
    a: Sequence[float],
    b: Sequence[float],
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Difference | None:
    """Resample both sides with replacement; None when the median of A is not above 0.

    With few samples the interval is at most as wide as the samples lie apart.
    """
    import numpy as np

    middle_a, middle_b = statistics.median(a), statistics.median(b)
    if not middle_a > 0:
        return None
    rng = np.random.default_rng(seed)
    left, right = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    medians_a = np.median(left[rng.integers(0, len(left), (resamples, len(left)))], axis=1)
    medians_b = np.median(right[rng.integers(0, len(right), (resamples, len(right)))], axis=1)
    ratios = medians_b[medians_a > 0] / medians_a[medians_a > 0] - 1.0
    tail = (1 - confidence) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return Difference(middle_b / middle_a - 1.0, float(low), float(high), middle_a, middle_b)
