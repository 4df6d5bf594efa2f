"""When requests arrive: schedules in seconds from the start, fully determined by their seed.

A schedule begins at 0 and its gaps are drawn independently. Totals are left as they fall: another
seed gives another length, as a real process does. What was asked and what was achieved are compared
with ``rate_per_s``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from turbo_lab.core.errors import UsageError

Schedule = tuple[float, ...]


def _check(count: int, rate_per_s: float) -> None:
    if count < 1:
        raise UsageError(f"count is {count}, it must be at least 1")
    if not 0 < rate_per_s < math.inf:
        raise UsageError(f"rate_per_s is {rate_per_s!r}; it must be above 0 and finite")


def _from_gaps(gaps: np.ndarray) -> Schedule:
    return (0.0, *(float(t) for t in np.cumsum(gaps)))


def constant(count: int, *, rate_per_s: float) -> Schedule:
    """``count`` requests, exactly 1 / rate apart (coefficient of variation 0)."""
    _check(count, rate_per_s)
    return tuple(index / rate_per_s for index in range(count))


def poisson(count: int, *, rate_per_s: float, seed: int) -> Schedule:
    """Exponential gaps (coefficient of variation 1): many independent users."""
    return gamma(count, rate_per_s=rate_per_s, shape=1.0, seed=seed)


def gamma(count: int, *, rate_per_s: float, shape: float, seed: int) -> Schedule:
    """Gamma gaps with mean 1 / rate; coefficient of variation 1 / sqrt(shape).

    Shape 1 is Poisson, below 1 is burstier, above 1 more regular (``burstiness`` of
    ``vllm bench serve`` is this shape).
    """
    _check(count, rate_per_s)
    if not 0 < shape < math.inf:
        raise UsageError(f"shape is {shape!r}; it must be above 0 (1 is Poisson)")
    rng = np.random.default_rng(seed)
    return _from_gaps(rng.gamma(shape, 1.0 / (rate_per_s * shape), size=count - 1))


def trace(times_s: Sequence[float], *, speed: float = 1.0, count: int | None = None) -> Schedule:
    """Recorded arrival times, moved to start at 0 and replayed ``speed`` times as fast."""
    if not 0 < speed < math.inf:
        raise UsageError(f"speed is {speed!r}; it must be above 0")
    chosen = [float(t) for t in times_s[:count]]
    if not chosen:
        raise UsageError("the trace has no arrivals")
    if any(not math.isfinite(t) for t in chosen) or chosen != sorted(chosen):
        raise UsageError("trace times must be finite and ascending")
    return tuple((t - chosen[0]) / speed for t in chosen)


def rate_per_s(times_s: Sequence[float]) -> float | None:
    """Rate of a schedule or of achieved send times: (n - 1) / (last - first); else None."""
    if len(times_s) < 2 or max(times_s) <= min(times_s):
        return None
    return (len(times_s) - 1) / (max(times_s) - min(times_s))


def gap_cv(times_s: Sequence[float]) -> float | None:
    """Coefficient of variation of the gaps: standard deviation / mean; None below two gaps."""
    gaps = [b - a for a, b in pairwise(sorted(times_s))]
    mean = sum(gaps) / len(gaps) if gaps else 0.0
    if len(gaps) < 2 or mean <= 0:
        return None
    return math.sqrt(sum((g - mean) ** 2 for g in gaps) / len(gaps)) / mean
