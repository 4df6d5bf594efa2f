"""How far repeated runs of one unchanged system lie apart: the one place that computes A/A noise.

Two questions, two numbers. ``repeat_noise``: how far may the mean of *further* runs lie (the
tolerance of a prediction). ``error_of_median``: how sure is the median of *these* runs (one side of
a comparison). ``experiment.noise`` keeps A/A comparisons over days and takes the latter where it
has none.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from turbo_lab.core.errors import UnmeasuredError, UsageError


@dataclass(frozen=True)
class RepeatNoise:
    """Runs of one unchanged system.

    Attributes:
        runs: one number per run (a median, a throughput); missing ones are left out.
        spread: (largest - smallest) / median, the plainest measure; None below two runs.
        relative: how far, relative to the mean, ``others`` further runs may lie from these by
            chance alone; None below two runs.
        others: how many further runs.
        confidence: in what share of cases.
    """

    runs: tuple[float, ...]
    spread: float | None
    relative: float | None
    others: int
    confidence: float

    @property
    def tolerance(self) -> float:
        """``relative`` for a prediction; 0.0 (only equality agrees) where no noise is known."""
        return 0.0 if self.relative is None else self.relative

    def holds(self, runs: Sequence[float | None]) -> bool | None:
        """Whether the mean of further runs lies within the noise; None where either is unknown."""
        if self.relative is None or not runs or any(run is None for run in runs):
            return None
        return abs(ratio_of_means(runs, to=self.runs) - 1) <= self.relative

    def __str__(self) -> str:
        if self.spread is None or self.relative is None:
            return f"{len(self.runs)} run(s): no A/A noise without at least two"
        return (
            f"{len(self.runs)} runs of the same client spread by {self.spread:.1%}; {self.others} "
            f"more may lie {self.relative:.1%} away by chance ({self.confidence:.0%} of cases)"
        )


def repeat_noise(
    runs: Sequence[float | None], *, others: int = 1, confidence: float = 0.95
) -> RepeatNoise:
    """The A/A noise of repeated runs.

    ``relative`` is the half-width of the prediction interval for the mean of ``others`` new runs
    around the mean of these n: t(n - 1) * s * sqrt(1/n + 1/others) / mean, with Student's t. It
    assumes runs that vary alike and without drift; with two runs t is 12.7, so little can be told.
    """
    if others < 1 or not 0 < confidence < 1:
        raise UsageError(f"others={others!r} must be at least 1, confidence={confidence!r} in 0-1")
    found = tuple(run for run in runs if run is not None)
    if any(not math.isfinite(run) or run <= 0 for run in found):
        raise UsageError(f"runs must be finite and above 0, got {found}")
    if len(found) < 2:
        return RepeatNoise(found, None, None, others, confidence)
    from scipy.stats import t

    count = len(found)
    factor = float(t.ppf((1 + confidence) / 2, count - 1)) * math.sqrt(1 / count + 1 / others)
    return RepeatNoise(
        runs=found,
        spread=(max(found) - min(found)) / statistics.median(found),
        relative=factor * statistics.stdev(found) / statistics.fmean(found),
        others=others,
        confidence=confidence,
    )


def error_of_median(runs: Sequence[float]) -> float:
    """Standard error of the median of these runs, relative: 1.2533 s / (sqrt(n) median).

    1.2533 = sqrt(pi / 2): large-sample ratio of the median's to the mean's standard error under a
    normal law. 0.0 below two runs or around a median of 0: nothing is known of their scatter.
    """
    middle = statistics.median(runs)
    if len(runs) < 2 or not middle:
        return 0.0
    return math.sqrt(math.pi / 2) * statistics.stdev(runs) / math.sqrt(len(runs)) / abs(middle)


def ratio_of_means(runs: Sequence[float | None], *, to: Sequence[float | None]) -> float:
    """Mean of ``runs`` over the mean of ``to``. Raises UnmeasuredError where a run has no number.

    A missing run is not left out: the survivors would look better than the system.
    """
    for what, values in (("the first", runs), ("the second", to)):
        if not values:
            raise UnmeasuredError(f"{what} side has no runs")
        if any(value is None for value in values):
            raise UnmeasuredError(f"{what} side has a run without a number: {list(values)}")
    return statistics.fmean(runs) / statistics.fmean(to)  # type: ignore[arg-type]
