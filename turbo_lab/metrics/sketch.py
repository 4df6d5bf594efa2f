"""Percentiles of any number of samples in fixed memory, mergeable: a histogram on a log scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError

ERROR = 0.005
LEAST, MOST = 1e-7, 1e8


class QuantileSketch:
    """Counts of positive samples in buckets that grow by a factor ``(1 + e) / (1 - e)``.

    A percentile is off by at most the relative error e. Two sketches add up exactly, so parts of
    a run may be sketched apart, in any order. Samples outside 1e-7 to 1e8 go to the end buckets.
    Source: Masson, Rim, Lee, DDSketch, VLDB 2019.
    """

    def __init__(self, *, relative_error: float = ERROR) -> None:
        if not 0 < relative_error < 0.5:
            raise UsageError(f"relative_error is {relative_error}; allowed: above 0, below 0.5")
        self.relative_error = relative_error
        self._log_gamma = math.log((1 + relative_error) / (1 - relative_error))
        self._offset = math.floor(math.log(LEAST) / self._log_gamma)
        size = math.ceil(math.log(MOST) / self._log_gamma) - self._offset + 1
        self._counts = np.zeros(size, dtype=np.int64)
        self.count = 0
        self.total = 0.0
        self.min = math.inf
        self.max = -math.inf

    def add(self, values: Sequence[float] | np.ndarray) -> None:
        """Add samples, 0 or more each. Raises UsageError for one that is negative or no number."""
        samples = np.asarray(values, dtype=float)
        if not samples.size:
            return
        if not (samples >= 0).all():
            raise UsageError("a sketch takes samples of 0 or more")
        places = np.ceil(np.log(np.maximum(samples, LEAST)) / self._log_gamma) - self._offset
        places = np.clip(places.astype(np.int64), 0, len(self._counts) - 1)
        self._counts += np.bincount(places, minlength=len(self._counts))
        self.count += samples.size
        self.total += float(samples.sum())
        self.min = min(self.min, float(samples.min()))
        self.max = max(self.max, float(samples.max()))

    def merge(self, other: QuantileSketch) -> None:
        """Add the samples of another sketch of the same error. Raises UsageError for another."""
        if other.relative_error != self.relative_error:
            raise UsageError(
                f"sketches of error {self.relative_error} and {other.relative_error} do not add up"
            )
        self._counts += other._counts
        self.count += other.count
        self.total += other.total
        self.min, self.max = min(self.min, other.min), max(self.max, other.max)

    @property
    def mean(self) -> float | None:
        """Exact mean; None without samples."""
        return self.total / self.count if self.count else None

    def percentile(self, p: float) -> float | None:
        """The p-th percentile (0-100), within the relative error; None without samples."""
        if not 0 <= p <= 100:
            raise UsageError(f"percentile {p!r} is outside 0-100")
        if not self.count:
            return None
        rank = p / 100 * (self.count - 1)
        place = int(np.searchsorted(np.cumsum(self._counts), rank, side="right"))
        gamma = math.exp(self._log_gamma)
        value = 2 * math.exp((place + self._offset) * self._log_gamma) / (gamma + 1)
        return min(max(value, self.min), self.max)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready statistics."""
        return {
            "count": self.count,
            "mean": self.mean,
            "min": None if not self.count else self.min,
            "max": None if not self.count else self.max,
            **{f"p{p}": self.percentile(p) for p in (50, 90, 95, 99)},
        }


class SampleStore:
    """The same interface with every sample kept: exact, 8 bytes a sample."""

    relative_error = 0.0

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []
        self._sorted: np.ndarray | None = None

    def add(self, values: Sequence[float] | np.ndarray) -> None:
        """Add samples."""
        self._parts.append(np.array(values, dtype=float))
        self._sorted = None

    def merge(self, other: SampleStore) -> None:
        """Add the samples of another store."""
        self._parts.extend(other._parts)
        self._sorted = None

    def values(self) -> np.ndarray:
        """All samples, ascending."""
        if self._sorted is None:
            self._sorted = np.sort(np.concatenate([np.empty(0), *self._parts]))
            self._parts = [self._sorted]
        return self._sorted

    @property
    def count(self) -> int:
        """Number of samples."""
        return sum(len(part) for part in self._parts)

    @property
    def mean(self) -> float | None:
        """Mean; None without samples."""
        return float(self.values().mean()) if self.count else None

    def percentile(self, p: float) -> float | None:
        """The p-th percentile (0-100) by linear interpolation, as ``percentiles.percentile``."""
        return float(np.percentile(self.values(), p)) if self.count else None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready statistics."""
        values = self.values()
        return {
            "count": self.count,
            "mean": self.mean,
            "min": float(values[0]) if self.count else None,
            "max": float(values[-1]) if self.count else None,
            **{f"p{p}": self.percentile(p) for p in (50, 90, 95, 99)},
        }
