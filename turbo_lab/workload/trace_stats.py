"""What a trace looks like in numbers, computed in one pass.

Memory: one counter per distinct length, and one entry per distinct prompt block where the trace
tells them (an infinite cache remembers all).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from turbo_lab.core.errors import UsageError
from turbo_lab.workload.trace_request import TraceRequest

PERCENTS = (1, 5, 25, 50, 75, 90, 95, 99)
WINDOWS_S = (1.0, 10.0, 60.0)
NO_BLOCKS = "unmeasured: the trace does not tell its prompt blocks"


class Gaps:
    """Mean and spread of the gaps between arrivals, in one pass (Welford)."""

    def __init__(self) -> None:
        self.count, self.mean_s, self._squares, self._last = 0, 0.0, 0.0, None

    def add(self, arrival_s: float) -> None:
        """The next arrival."""
        if self._last is not None:
            gap = arrival_s - self._last
            self.count += 1
            delta = gap - self.mean_s
            self.mean_s += delta / self.count
            self._squares += delta * (gap - self.mean_s)
        self._last = arrival_s

    @property
    def cv(self) -> float | None:
        """Standard deviation over mean; 1 for a Poisson process. None below two gaps."""
        if self.count < 2 or self.mean_s <= 0:
            return None
        return math.sqrt(self._squares / self.count) / self.mean_s


class WindowCounts:
    """Variance over mean of the arrivals per window: 1 for a Poisson process at every window.

    Gaps may look like Poisson while the rate drifts for minutes; long windows show it.
    """

    def __init__(self, window_s: float) -> None:
        self.window_s, self._at, self._count = window_s, 0, 0
        self._windows, self._sum, self._squares, self.most = 0, 0, 0, 0

    def add(self, arrival_s: float) -> None:
        """The next arrival, counted from 0."""
        at = int(arrival_s // self.window_s)
        if at != self._at:
            self._close(at - self._at)
            self._at, self._count = at, 0
        self._count += 1

    def _close(self, windows: int) -> None:
        self._windows += windows
        self._sum += self._count
        self._squares += self._count**2
        self.most = max(self.most, self._count)

    @property
    def mean(self) -> float | None:
        """Arrivals per whole window; None below two windows. The last, cut one is left out."""
        return self._sum / self._windows if self._windows >= 2 else None

    @property
    def dispersion(self) -> float | None:
        """Variance over mean, None below two windows."""
        if not (mean := self.mean):
            return None
        return (self._squares / self._windows - mean**2) / mean


class PrefixHits:
    """Share of prompt blocks that an infinite prefix cache holds already.

    A block is a hit when it and all blocks before it in the prompt were seen in an earlier request.
    """

    def __init__(self) -> None:
        self.blocks, self.hits = 0, 0
        self._seen: set[int] = set()

    def add(self, block_ids: tuple[int, ...]) -> int:
        """The next prompt; returns how many of its blocks are hits."""
        seen, hits = self._seen, 0
        for block in block_ids:
            if block not in seen:
                break
            hits += 1
        seen.update(block_ids[hits:])
        self.blocks += len(block_ids)
        self.hits += hits
        return hits

    @property
    def rate(self) -> float | None:
        """Hits over blocks; None where no request told its blocks."""
        return self.hits / self.blocks if self.blocks else None


def length_summary(counts: Mapping[int, int]) -> dict[str, float]:
    """Mean, least, most and percentiles of lengths given as length to how often.

    Percentiles lie between the two nearest values (linear, as NumPy's default).
    """
    total, values = sum(counts.values()), sorted(counts)
    ends: list[int] = []
    for value in values:
        ends.append((ends[-1] if ends else 0) + counts[value])
    out: dict[str, float] = {
        "mean": sum(v * n for v, n in counts.items()) / total,
        "min": values[0],
        "max": values[-1],
    }
    for percent in PERCENTS:
        out[f"p{percent}"] = _at_rank(values, ends, percent / 100 * (total - 1))
    return out


def _at_rank(values: list[int], ends: list[int], rank: float) -> float:
    """The value at a rank from 0, between neighbours where it is no whole number."""
    low = math.floor(rank)
    here = values[bisect_right(ends, low)]
    if rank == low:
        return float(here)
    above = values[bisect_right(ends, low + 1)]
    return here + (above - here) * (rank - low)


def trace_statistics(requests: Iterable[TraceRequest]) -> dict[str, Any]:
    """All numbers of a trace, JSON-ready.

    ``requests``, ``duration_s`` (first to last arrival), ``rate_per_s`` (gaps per second),
    ``interarrival_cv``, ``dispersion`` (window in seconds to variance over mean of the counts),
    ``input_tokens`` and ``output_tokens`` (mean, min, max, percentiles), ``tenants``,
    ``ideal_prefix_hit_rate`` (share of blocks under an infinite cache) with ``prompt_blocks``. What
    the trace does not tell is None. Raises UsageError for a trace without requests.
    """
    gaps, hits = Gaps(), PrefixHits()
    windows = [WindowCounts(w) for w in WINDOWS_S]
    lengths: tuple[Counter[int], Counter[int]] = Counter(), Counter()
    tenants: set[str] = set()
    last_s = 0.0
    for request in requests:
        last_s = request.arrival_s
        gaps.add(last_s)
        for window in windows:
            window.add(last_s)
        lengths[0][request.input_tokens] += 1
        lengths[1][request.output_tokens] += 1
        tenants.add(request.tenant)
        if request.block_ids:
            hits.add(request.block_ids)
    if not lengths[0]:
        raise UsageError("the trace has no requests.")
    return {
        "requests": sum(lengths[0].values()),
        "duration_s": last_s,
        "rate_per_s": 1 / gaps.mean_s if gaps.mean_s > 0 else None,
        "interarrival_cv": gaps.cv,
        "dispersion": {f"{w.window_s:g}": w.dispersion for w in windows},
        "input_tokens": length_summary(lengths[0]),
        "output_tokens": length_summary(lengths[1]),
        "tenants": len(tenants - {""}) or None,
        "prompt_blocks": hits.blocks or None,
        "ideal_prefix_hit_rate": hits.rate,
        "ideal_prefix_hit_note": None if hits.blocks else NO_BLOCKS,
    }
