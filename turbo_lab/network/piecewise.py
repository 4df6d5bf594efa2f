"""Seconds of a message by its size, in straight pieces: protocols and caches change with size.

    t(x) = alpha + slope_0 * min(x, b_1) + slope_1 * clip(x - b_1, 0, b_2 - b_1) + ...

Continuous, and never falling, as no slope is negative. One piece is the usual latency-bandwidth
model; it is off by half in the middle of a real machine's range.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.core.fitting import nonnegative_fit, robust_nonnegative_fit

MOST_BREAKS = 3
NOISE = 0.01  # a fit closer than 1 % is not worth another break
MOVES = 2  # rounds over all breaks
PLACES = tuple(i / 12 for i in range(1, 12))  # shares of the (logarithmic) way between neighbours
WORTH = 0.1  # smaller gains leave a break at a measured size
Point = tuple[float, float]  # (bytes, seconds)


@dataclass(frozen=True)
class MessageCost:
    """Cost of one message. ``breaks_bytes`` ascend; one slope (s/byte) more than breaks."""

    alpha_s: float
    slopes_s_byte: tuple[float, ...]
    breaks_bytes: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a curve that falls or whose parts do not fit together."""
        ascending = all(a < b for a, b in itertools.pairwise((0.0, *self.breaks_bytes)))
        whole = len(self.slopes_s_byte) == len(self.breaks_bytes) + 1
        if not whole or not ascending or min(self.alpha_s, *self.slopes_s_byte) < 0:
            raise UsageError(
                f"alpha {self.alpha_s}, slopes {self.slopes_s_byte}, breaks {self.breaks_bytes}: "
                "breaks must ascend above 0, with one slope more than breaks, nothing negative"
            )

    def seconds(self, size_bytes: float) -> float:
        """Seconds of a message of ``size_bytes``."""
        if size_bytes < 0:
            raise UsageError(f"a message of {size_bytes} bytes; allowed: 0 or more")
        return float(
            _columns([size_bytes], self.breaks_bytes)[0] @ [self.alpha_s, *self.slopes_s_byte]
        )

    def bandwidth_bytes_s(self) -> float:
        """Rate that the largest messages approach; infinite where the last slope is 0."""
        last = self.slopes_s_byte[-1]
        return 1 / last if last else float("inf")

    def half_size_bytes(self) -> float:
        """Size from which a message runs at half of that rate or more (``n_1/2``)."""
        rate = self.bandwidth_bytes_s()
        edges = [*self.breaks_bytes, 2 * (self.breaks_bytes[-1] if self.breaks_bytes else 1)]
        while 2 * edges[-1] < rate * self.seconds(edges[-1]):
            edges.append(2 * edges[-1])
        low, high = 0.0, edges[-1]
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (
                (low, middle) if 2 * middle >= rate * self.seconds(middle) else (middle, high)
            )
        return high


@dataclass(frozen=True)
class HeldOut:
    """Errors on sizes the fit has not seen. ``noise``: between repeats of one size (A/A)."""

    points: int
    median: float
    worst: float
    noise: float | None

    def within(self, limit: float) -> bool:
        """True when the median error is at most ``limit``, or the measurement's own noise."""
        return self.median <= max(limit, self.noise or 0.0)


def latency_bandwidth(alpha_s: float, bandwidth_bytes_s: float) -> MessageCost:
    """The usual model of one piece: ``alpha + x / bandwidth``."""
    if not bandwidth_bytes_s > 0:
        raise UsageError(f"bandwidth is {bandwidth_bytes_s} bytes/s; it must be above 0")
    return MessageCost(alpha_s, (1 / bandwidth_bytes_s,))


def through_ends(points: Sequence[Point]) -> MessageCost:
    """One piece through the smallest and the largest point: what a quick estimate does."""
    (x0, t0), (x1, t1) = _checked(points)[0], _checked(points)[-1]
    slope = (t1 - t0) / (x1 - x0)
    return MessageCost(max(0.0, t0 - slope * x0), (max(0.0, slope),))


def fit_message_cost(points: Sequence[Point], *, most_breaks: int = MOST_BREAKS) -> MessageCost:
    """Fit on measured (bytes, seconds), with as many breaks as pay.

    Breaks are chosen among the measured sizes (Bayesian information criterion on relative errors),
    then moved between their neighbours.
    Raises UsageError for fewer than two sizes or values out of range.
    """
    ordered = _checked(points)
    sizes, seconds = (np.array(part, dtype=float) for part in zip(*ordered, strict=True))
    inner = sorted(set(sizes))[1:-1]
    best, best_score = (), float("inf")
    for count in range(min(most_breaks, len(inner)) + 1):
        score, breaks = min(
            (_score(sizes, seconds, chosen), chosen)
            for chosen in itertools.combinations(inner, count)
        )
        if score < best_score:
            best, best_score = breaks, score
    best = _moved(sizes, seconds, best)
    alpha_s, *slopes = robust_nonnegative_fit(_columns(sizes, best), seconds)
    return MessageCost(alpha_s, tuple(slopes), tuple(float(b) for b in best))


def held_out_error(points: Sequence[Point], *, most_breaks: int = MOST_BREAKS) -> HeldOut:
    """Fit on every other size, the ends among them, and compare with the sizes between."""
    ordered = _checked(points)
    sizes = sorted({size for size, _ in ordered})
    hidden = set(sizes[1:-1:2])
    if not hidden:
        raise UsageError(f"{len(sizes)} sizes; holding some out needs at least three")
    cost = fit_message_cost([p for p in ordered if p[0] not in hidden], most_breaks=most_breaks)
    return compare(cost, [p for p in ordered if p[0] in hidden])


def compare(cost: MessageCost, points: Sequence[Point]) -> HeldOut:
    """Relative errors of ``cost`` on measured points."""
    errors = [abs(cost.seconds(size) - seconds) / seconds for size, seconds in points]
    if not errors:
        raise UsageError("there are no points to compare with")
    return HeldOut(len(errors), statistics.median(errors), max(errors), _noise(points))


def _noise(points: Sequence[Point]) -> float | None:
    """Median relative difference between two measurements of a size; None without repeats."""
    by_size: dict[float, list[float]] = {}
    for size, seconds in points:
        by_size.setdefault(size, []).append(seconds)
    pairs = [(a, b) for group in by_size.values() for a, b in itertools.combinations(group, 2)]
    return statistics.median(abs(a - b) / min(a, b) for a, b in pairs) if pairs else None


def _checked(points: Sequence[Point]) -> list[Point]:
    ordered = sorted(points)
    if len({size for size, _ in ordered}) < 2:
        raise UsageError("a cost curve needs points of at least two sizes")
    if ordered[0][0] < 0 or not all(0 < seconds < float("inf") for _, seconds in ordered):
        raise UsageError("sizes must be 0 or more, and times above 0 s")
    return ordered


def _columns(sizes: Sequence[float] | np.ndarray, breaks: Sequence[float]) -> np.ndarray:
    """One column per coefficient: 1, then what of the size lies in each piece."""
    x = np.asarray(sizes, dtype=float)
    edges = [0.0, *breaks, float("inf")]
    parts = [np.clip(x, low, high) - low for low, high in itertools.pairwise(edges)]
    return np.stack([np.ones_like(x), *parts], axis=1)


def _moved(sizes: np.ndarray, seconds: np.ndarray, breaks: tuple[float, ...]) -> tuple[float, ...]:
    """Breaks moved to where the error is least, each between the measured sizes beside it."""
    known = sorted(set(sizes))
    best, least = breaks, _score(sizes, seconds, breaks)
    for index in [*range(len(breaks))] * MOVES:
        place = min(range(len(known)), key=lambda i: abs(known[i] - best[index]))
        low, high = known[max(place - 1, 0)], known[min(place + 1, len(known) - 1)]
        for share in PLACES:
            moved = (
                *best[:index],
                max(low, 1.0) * (high / max(low, 1.0)) ** share,
                *best[index + 1 :],
            )
            ascending = all(a < b for a, b in itertools.pairwise((0.0, *moved)))
            score = _score(sizes, seconds, moved) if ascending else float("inf")
            if score < least - WORTH:
                best, least = moved, score
    return best


def _score(sizes: np.ndarray, seconds: np.ndarray, breaks: Sequence[float]) -> float:
    columns = _columns(sizes, breaks)
    errors = columns @ nonnegative_fit(columns, seconds) / seconds - 1
    rows = len(seconds)
    return rows * np.log(np.mean(errors**2) + NOISE**2) + 2 * len(breaks) * np.log(rows)
