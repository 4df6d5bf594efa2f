"""Percentiles: the method is stored with the number, and so is whether the sample certifies it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb

from turbo_lab.core.errors import UsageError

LINEAR = "linear interpolation"
WEIGHTED_CDF = "smallest value whose cumulative weight reaches p"
UPPER_RANK = "sorted value at index int(n * p / 100)"
CONFIDENCE = 0.99

PercentileRule = Callable[[Sequence[float], Sequence[float] | None, float], float | None]


def percentile(values: Sequence[float], p: float) -> float | None:
    """The p-th percentile (0-100) by linear interpolation between closest ranks; None if empty.

    Rank p/100 * (n - 1), as numpy's default.
    """
    if not 0 <= p <= 100:
        raise UsageError(f"percentile {p!r} is outside 0-100")
    if not values:
        return None
    ordered = sorted(values)
    rank = p / 100 * (len(ordered) - 1)
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def linear(values: Sequence[float], weights: Sequence[float] | None, p: float) -> float | None:
    """``percentile`` as a rule; weights play no part in it."""
    return percentile(values, p)


def weighted_cdf(
    values: Sequence[float], weights: Sequence[float] | None, p: float
) -> float | None:
    """The smallest value at which the cumulative share of the weights reaches p per cent."""
    if not values:
        return None
    pairs = sorted(zip(values, weights or [1.0] * len(values), strict=True))
    total, reached = sum(w for _, w in pairs), 0.0
    for value, weight in pairs:
        reached += weight
        if total > 0 and reached / total >= p / 100 * (1 - 1e-12):
            return value
    return pairs[-1][0]


def upper_rank(values: Sequence[float], weights: Sequence[float] | None, p: float) -> float | None:
    """The sorted value at index int(n * p / 100), without interpolation."""
    if not values:
        return None
    return sorted(values)[min(int(len(values) * p / 100), len(values) - 1)]


def samples_to_certify(p: float, *, confidence: float = CONFIDENCE) -> int:
    """Smallest sample that certifies the p-th percentile (0-100, exclusive).

    The smallest n with P[Bin(n, 1 - p) <= 1] <= 1 - confidence: with fewer samples it is too
    likely that at most one of them lies in the tail. The rule of MLPerf LoadGen's early stopping
    (mlcommons/inference, loadgen/early_stopping.cc). P50 11, P90 64, P95 130, P99 662 at 99 %.
    """
    if not 0 < p < 100 or not 0 < confidence < 1:
        raise UsageError(f"p={p!r} must be in (0, 100) and confidence={confidence!r} in (0, 1)")
    tail, n = 1 - p / 100, 2
    while _at_most_one(n, tail) > 1 - confidence:
        n += max(1, n // 1000)
    while n > 2 and _at_most_one(n - 1, tail) <= 1 - confidence:
        n -= 1
    return n


def _at_most_one(n: int, tail: float) -> float:
    return sum(comb(n, k) * tail**k * (1 - tail) ** (n - k) for k in (0, 1))


def certified(count: int, p: float, *, confidence: float = CONFIDENCE) -> bool:
    """True when ``count`` samples certify the p-th percentile at this confidence."""
    return count >= samples_to_certify(p, confidence=confidence)
