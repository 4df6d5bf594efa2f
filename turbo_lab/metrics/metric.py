"""One metric's samples, and one number of a whole run, each with its definition."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from turbo_lab.core.units import format_seconds
from turbo_lab.metrics.percentiles import LINEAR, PercentileRule, certified, linear

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True)
class Metric:
    """Samples of one metric with everything needed to read them.

    ``count`` samples from the requests that count; ``undefined`` of those requests have none.
    Every statistic is None when there is no sample. ``requests``: how many requests gave the
    samples, where that may be fewer than there are samples.
    """

    name: str
    unit: str
    definition: str
    values: tuple[float, ...] = field(repr=False)
    undefined: int = 0
    weighting: str = "one sample per request"
    weights: tuple[float, ...] | None = field(default=None, repr=False)
    percentile_method: str = LINEAR
    percentile_rule: PercentileRule = field(default=linear, repr=False)
    requests: int | None = None

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.values)

    @property
    def mean(self) -> float | None:
        """Mean, weighted as ``weighting`` says."""
        if self.weights is not None:
            return self.weighted_mean(self.weights)
        return statistics.fmean(self.values) if self.values else None

    def weighted_mean(self, weights: Sequence[float]) -> float | None:
        """Mean of the samples with these weights (e.g. tokens); None when they sum to 0."""
        total = sum(weights)
        if not self.values or not total:
            return None
        return sum(v * w for v, w in zip(self.values, weights, strict=True)) / total

    @property
    def min(self) -> float | None:
        """Smallest sample."""
        return min(self.values, default=None)

    @property
    def max(self) -> float | None:
        """Largest sample."""
        return max(self.values, default=None)

    @property
    def median(self) -> float | None:
        """The 50th percentile by this metric's method."""
        return self.percentile(50)

    def percentile(self, p: float) -> float | None:
        """The p-th percentile (0-100) by ``percentile_method``."""
        return self.percentile_rule(self.values, self.weights, p)

    def certified(self, p: float) -> bool:
        """Whether the sample is large enough to certify the p-th percentile at 99 %.

        Gaps of one reply depend on each other (and one slow step is a gap of every reply in it),
        and the rule is one for independent samples: so requests count, not gaps.
        """
        independent = self.count if self.requests is None else min(self.count, self.requests)
        return certified(independent, p)

    p50 = median
    p90 = property(lambda self: self.percentile(90), doc="90th percentile.")
    p95 = property(lambda self: self.percentile(95), doc="95th percentile.")
    p99 = property(lambda self: self.percentile(99), doc="99th percentile.")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready statistics with unit and definition; None where there is no sample."""
        stats = {f"p{p}": self.percentile(p) for p in PERCENTILES}
        return {
            "unit": self.unit,
            "definition": self.definition,
            "count": self.count,
            "undefined": self.undefined,
            "mean": self.mean,
            "min": self.min,
            "max": self.max,
            **stats,
            "certified": {f"p{p}": self.certified(p) for p in PERCENTILES},
            "percentile_method": self.percentile_method,
            "weighting": self.weighting,
        }

    def __str__(self) -> str:
        head = f"{self.name} [{self.unit}]: {self.definition}"
        if not self.values:
            state = f"undefined for {self.undefined} requests" if self.undefined else "no data"
            return f"{head}\n    {state}"
        shown = [f"{name} {self._show(getattr(self, name))}" for name in ("mean", "min", "max")]
        shown += [f"p{p} {self._show(self.percentile(p))}" for p in PERCENTILES]
        small = [f"p{p}" for p in PERCENTILES if not self.certified(p)]
        lines = [head, f"    {', '.join(shown)}"]
        if small:
            lines.append(f"    not certified (too few samples): {', '.join(small)}")
        undefined = f", undefined for {self.undefined} requests" if self.undefined else ""
        lines.append(
            f"    n = {self.count} ({self.weighting}){undefined}; "
            f"percentiles: {self.percentile_method}"
        )
        return "\n".join(lines)

    def _show(self, value: float | None) -> str:
        if self.unit == "s":
            return format_seconds(value)
        return "undefined" if value is None else f"{value:.6g}"


@dataclass(frozen=True)
class Quantity:
    """One number of the whole run; ``value`` is None with the reason in ``why_not``."""

    name: str
    unit: str
    definition: str
    value: float | None
    why_not: str = ""

    def __str__(self) -> str:
        shown = f"undefined ({self.why_not})" if self.value is None else f"{self.value:.6g}"
        return f"{self.name} [{self.unit}]: {shown}; {self.definition}"
