"""Arrival times without end: Poisson or burstier gaps, a rate that drifts, and the hours of a day.

Unit-rate gaps (gamma, coefficient of variation ``gap_cv``) are bent by the rate at each moment:
``rate_per_s * drift(t) * hour(t)``. The drift has mean 1, a gamma distribution with coefficient of
variation ``drift_cv``, and forgets itself with the time ``drift_s``. Counts in windows of w seconds
then have variance over mean ``gap_cv^2 + rate * w * drift_cv^2 * g(w / drift_s)`` with
``g(x) = 2 (x - 1 + exp(-x)) / x^2``; ``fit_arrivals`` inverts it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from turbo_lab.core.errors import UsageError

HOURS, DAY_S = 24, 86_400.0
BATCH = 1 << 14  # arrivals drawn at a time, about
WINDOWS = 4096  # most pieces of constant rate that are drawn at a time
PIECES = 10  # of them in the time in which the drift forgets itself
FIT_WINDOWS_S = (1.0, 3.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True)
class ArrivalShape:
    """How requests arrive.

    Attributes:
        rate_per_s: mean rate.
        gap_cv: coefficient of variation of the gaps at a constant rate: 1 is Poisson.
        drift_cv: coefficient of variation of the rate itself; 0 keeps it constant.
        drift_s: after this time the rate remembers 1/e of what it was.
        hourly: 24 relative rates, from midnight on; empty for none. Their mean counts as 1.
        tick_s: times are recorded only so finely (a whole batch gets one time); 0 for exactly.
    """

    rate_per_s: float
    gap_cv: float = 1.0
    drift_cv: float = 0.0
    drift_s: float = 60.0
    hourly: tuple[float, ...] = ()
    tick_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no process."""
        object.__setattr__(self, "hourly", tuple(float(h) for h in self.hourly))
        for name, least in (("rate_per_s", 0), ("gap_cv", 0), ("drift_s", 0)):
            value = getattr(self, name)
            if not least < value < math.inf:
                raise UsageError(f"{name} is {value!r}; it must be above {least} and finite")
        for name in ("drift_cv", "tick_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UsageError(f"{name} is {getattr(self, name)!r}; allowed: 0 or more")
        if self.hourly and (
            len(self.hourly) != HOURS or min(self.hourly) < 0 or not any(self.hourly)
        ):
            raise UsageError(
                f"hourly needs {HOURS} rates of 0 or more, not {list(self.hourly)[:5]}"
            )

    @property
    def steady(self) -> bool:
        """Whether the rate is the same at all times."""
        return not self.drift_cv and not self.hourly

    def dispersion(self, window_s: float) -> float:
        """Variance over mean of the counts per window, the hours apart (gaps of cv 1 exactly)."""
        x = window_s / self.drift_s
        memory = 2 * (x - 1 + math.exp(-x)) / x**2
        return self.gap_cv**2 + self.rate_per_s * window_s * self.drift_cv**2 * memory


def arrival_batches(shape: ArrivalShape, *, seed: int) -> Iterator[np.ndarray]:
    """Times in seconds, ascending from 0, in batches without end and in constant memory."""
    rng = np.random.default_rng(seed)
    start_s: float | None = None
    for times in _steady(shape, rng) if shape.steady else _bent(shape, rng):
        if len(times):
            start_s = float(times[0]) if start_s is None else start_s
            times = times - start_s
            yield np.floor(times / shape.tick_s) * shape.tick_s if shape.tick_s else times


def _gaps(shape: ArrivalShape, rng: np.random.Generator, count: int) -> np.ndarray:
    if shape.gap_cv == 1.0:
        return rng.exponential(size=count)
    return rng.gamma(shape.gap_cv**-2, shape.gap_cv**2, size=count)


def _steady(shape: ArrivalShape, rng: np.random.Generator) -> Iterator[np.ndarray]:
    at = 0.0
    while True:
        units = at + np.cumsum(_gaps(shape, rng, BATCH))
        at = units[-1]
        yield units / shape.rate_per_s


def _bent(shape: ArrivalShape, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Unit-rate events at u happen when the rate has added up to u."""
    width_s = min(60.0, BATCH / shape.rate_per_s)
    if shape.drift_cv:
        width_s = min(width_s, shape.drift_s / PIECES)
    pieces = max(1, min(WINDOWS, int(BATCH / (shape.rate_per_s * width_s))))
    table = _drift_table(shape.drift_cv) if shape.drift_cv else None
    start_s = passed = memory = 0.0
    ahead = np.cumsum(_gaps(shape, rng, 1))
    while True:
        edges_s = start_s + width_s * np.arange(pieces + 1)
        rates, memory = _rates(shape, rng, edges_s[:-1], width_s, memory, table)
        sums = passed + np.concatenate([[0.0], np.cumsum(rates * width_s)])
        while ahead[-1] <= sums[-1]:
            more = max(64, int(1.1 * (sums[-1] - ahead[-1])))
            ahead = np.concatenate([ahead, ahead[-1] + np.cumsum(_gaps(shape, rng, more))])
        due = int(np.searchsorted(ahead, sums[-1], side="right"))
        yield np.interp(ahead[:due], sums, edges_s)
        ahead, start_s, passed = ahead[due:], float(edges_s[-1]), float(sums[-1])


def _rates(
    shape: ArrivalShape,
    rng: np.random.Generator,
    at_s: np.ndarray,
    width_s: float,
    memory: float,
    table: tuple[np.ndarray, np.ndarray] | None,
) -> tuple[np.ndarray, float]:
    """Rate in each piece, and what the drift takes along to the next ones."""
    rates = np.full(len(at_s), shape.rate_per_s)
    if shape.hourly:
        weights = np.array(shape.hourly) / np.mean(shape.hourly)
        rates *= weights[(at_s % DAY_S // (DAY_S / HOURS)).astype(int)]
    if table is not None:
        from scipy.signal import lfilter

        keep = math.exp(-width_s / shape.drift_s)
        noise = rng.standard_normal(len(at_s)) * math.sqrt(1 - keep**2)
        before = memory if at_s[0] else rng.standard_normal()
        drift, _ = lfilter([1.0], [1.0, -keep], noise, zi=np.array([keep * before]))
        memory = float(drift[-1])
        rates *= np.interp(drift, *table)
    return rates, memory


def _drift_table(drift_cv: float) -> tuple[np.ndarray, np.ndarray]:
    """A standard normal value to the gamma value of the same rank (mean 1)."""
    from scipy.stats import gamma, norm

    normal = np.linspace(-6, 6, 2401)
    return normal, gamma.ppf(norm.cdf(normal), drift_cv**-2, scale=drift_cv**2)


def fit_arrivals(times_s: Sequence[float], *, tick_s: float = 0.0) -> ArrivalShape:
    """The shape whose counts vary as those of a trace do, in windows of 1 to 60 seconds.

    A trace of less than an hour or two has no hours to fit. Raises UsageError for a trace shorter
    than ten of the longest windows.
    """
    times = np.asarray(times_s, dtype=float)
    if len(times) < 100 or times[-1] - times[0] < 10 * FIT_WINDOWS_S[-1]:
        raise UsageError(
            f"{len(times)} arrivals are too few, or too short a trace: a fit needs 100 arrivals in "
            f"{10 * FIT_WINDOWS_S[-1]:g} s"
        )
    rate = float((len(times) - 1) / (times[-1] - times[0]))
    windows = [w for w in FIT_WINDOWS_S if w >= 3 * tick_s]
    extra = np.array([_dispersion(times, w) - 1 for w in windows])
    if extra.max() <= 0.1:
        return ArrivalShape(rate, tick_s=tick_s)
    best: tuple[float, float, float] | None = None
    for drift_s in np.geomspace(0.3, 3000, 60):
        unit = ArrivalShape(rate, drift_cv=1.0, drift_s=float(drift_s))
        slopes = np.array([unit.dispersion(w) - 1 for w in windows])
        weights = 1 / (1 + np.maximum(extra, 0))
        variance = max(
            0.0, float(np.sum(weights**2 * slopes * extra) / np.sum((weights * slopes) ** 2))
        )
        error = float(np.sum((weights * (variance * slopes - extra)) ** 2))
        if best is None or error < best[0]:
            best = (error, variance, float(drift_s))
    assert best is not None
    return ArrivalShape(rate, drift_cv=math.sqrt(best[1]), drift_s=best[2], tick_s=tick_s)


def fit_hours(times_s: Sequence[float]) -> tuple[float, ...]:
    """Relative rate of each hour of the day, for a trace that begins at midnight and lasts a day.

    Raises UsageError for a shorter one.
    """
    times = np.asarray(times_s, dtype=float)
    days = math.floor(times[-1] / DAY_S) if len(times) else 0
    if days < 1:
        raise UsageError("the hours of a day need a trace of a day or more")
    whole = times[times < days * DAY_S]
    counts = np.bincount((whole % DAY_S // 3600).astype(int), minlength=HOURS)
    return tuple(float(c) for c in counts / counts.mean())


def _dispersion(times: np.ndarray, window_s: float) -> float:
    counts = np.bincount(((times - times[0]) // window_s).astype(int))[:-1]
    return float(counts.var() / counts.mean())
