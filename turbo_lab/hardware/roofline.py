"""The roofline: how fast work can be when compute and memory are both limited.

Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from turbo_lab.core.errors import TurboLabError, UsageError


class AboveRoofError(TurboLabError):
    """A measured point is faster than the machine's ceilings allow: a unit or a count is wrong."""


@dataclass(frozen=True)
class Roof:
    """Two ceilings. ``peak_flops``: operations/s; ``bandwidth_bytes_s``: bytes/s of memory."""

    peak_flops: float
    bandwidth_bytes_s: float
    label: str = ""

    def __post_init__(self) -> None:
        """Refuse ceilings that are not positive."""
        if not (self.peak_flops > 0 and self.bandwidth_bytes_s > 0):
            raise UsageError(
                f"a roof needs two positive ceilings, not {self.peak_flops!r} operations/s "
                f"and {self.bandwidth_bytes_s!r} bytes/s"
            )

    @property
    def ridge(self) -> float:
        """Operations per byte at which both ceilings meet (LLM papers: ops:byte ratio)."""
        return self.peak_flops / self.bandwidth_bytes_s

    def attainable_flops(self, intensity: float) -> float:
        """Operations/s at ``intensity`` operations per byte: ``min(peak, I * bandwidth)``."""
        return min(self.peak_flops, intensity * self.bandwidth_bytes_s)

    def lower_bound_s(self, *, flops: float, bytes_moved: float) -> float:
        """Least time, compute and memory fully overlapped: ``max(flops/peak, bytes/bandwidth)``."""
        return max(flops / self.peak_flops, bytes_moved / self.bandwidth_bytes_s)

    def upper_bound_s(self, *, flops: float, bytes_moved: float) -> float:
        """Time without any overlap at full rates: ``flops/peak + bytes/bandwidth``.

        At most twice the lower bound. It bounds an implementation that reaches both ceilings in
        turn, not a slow one.
        """
        return flops / self.peak_flops + bytes_moved / self.bandwidth_bytes_s

    def bound_by(self, *, flops: float, bytes_moved: float) -> str:
        """``compute`` or ``memory``: the ceiling that sets the lower bound."""
        compute_s, memory_s = flops / self.peak_flops, bytes_moved / self.bandwidth_bytes_s
        return "compute" if compute_s >= memory_s else "memory"


@dataclass(frozen=True)
class RooflinePoint:
    """One measurement: operations and bytes counted, seconds measured."""

    label: str
    flops: float
    bytes_moved: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes_moved

    @property
    def achieved_flops(self) -> float:
        """Operations per second."""
        return self.flops / self.seconds

    def height(self, roof: Roof) -> float:
        """Achieved over attainable: above 1 is impossible."""
        return roof.lower_bound_s(flops=self.flops, bytes_moved=self.bytes_moved) / self.seconds


def above_roof(
    points: Iterable[RooflinePoint], *, roof: Roof, tolerance: float = 0.0
) -> list[RooflinePoint]:
    """The points that lie above the roof by more than ``tolerance`` (relative)."""
    return [point for point in points if not point.height(roof) <= 1 + tolerance]


def require_below_roof(
    points: Iterable[RooflinePoint], *, roof: Roof, tolerance: float = 0.0
) -> None:
    """Raise AboveRoofError naming each point above the roof and the likely unit at fault.

    ``tolerance``: how much the ceilings themselves may be too low, from their repeated measurement.
    """
    wrong = above_roof(points, roof=roof, tolerance=tolerance)
    if not wrong:
        return
    lines = [
        f"  {p.label}: {p.height(roof):.3g} times the roof{_hint(p.height(roof))}" for p in wrong
    ]
    raise AboveRoofError(
        f"{len(wrong)} point(s) above the roof ({roof.label or 'no label'}: "
        f"{roof.peak_flops:.3g} operations/s, {roof.bandwidth_bytes_s:.3g} bytes/s):\n"
        + "\n".join(lines)
        + "\nCheck the units, then whether the working set fits a cache, then the ceilings."
    )


def _hint(height: float) -> str:
    """What a factor of this size usually means."""
    if height >= 2e4:
        return " (µs or ns taken for s?)"
    if height >= 20:
        return " (ms taken for s?)"
    if height >= 4:
        return " (bits taken for bytes, or a working set inside a cache?)"
    return ""
