"""Decode speed from bytes moved: one server is measured, the others follow from their bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.estimate.points import MeasuredStep, StepPoint

POINTS = (StepPoint("decode", 1, 128), StepPoint("decode", 8, 128), StepPoint("prefill", 1, 512))
ALONE, TOGETHER, PROMPT = POINTS


@dataclass(frozen=True)
class ByteLaw:
    """Step time of one sequence: what one measured server needs, and the bytes that differ.

    ``step_s`` and ``read_bytes`` are of the measured server, ``bandwidth_bytes_s`` is the machine's
    ceiling. All that is not reading weights is taken to be the same for every server.
    """

    step_s: float
    read_bytes: int
    bandwidth_bytes_s: float

    def __post_init__(self) -> None:
        """Refuse values that are not positive."""
        for name in ("step_s", "read_bytes", "bandwidth_bytes_s"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be above 0")

    @property
    def other_s(self) -> float:
        """Seconds per step that are not the reading of weights at the ceiling; 0 at least."""
        return max(0.0, self.step_s - self.read_bytes / self.bandwidth_bytes_s)

    def predicted_s(self, read_bytes: float) -> float:
        """``other_s + read_bytes / bandwidth`` for a server that reads so many bytes per step."""
        return self.other_s + read_bytes / self.bandwidth_bytes_s

    def speedup(self, read_bytes: float) -> float:
        """Predicted tokens per second over those of the measured server."""
        return self.step_s / self.predicted_s(read_bytes)


def seconds_of(steps: Mapping[str, Sequence[MeasuredStep]], arm: str, point: StepPoint) -> float:
    """Seconds of a point on one arm. Raises UnmeasuredError where it is missing."""
    for step in steps.get(arm, ()):
        if step.point == point:
            return step.seconds
    raise UnmeasuredError(f"{point} was not measured on {arm}")


def noise_of(steps: Mapping[str, Sequence[MeasuredStep]]) -> float:
    """Largest relative difference between two passes' halves of one decode point on any arm (A/A).

    0 where nothing was measured twice.
    """
    pairs = [
        step.halves
        for rows in steps.values()
        for step in rows
        if step.halves and step.point.phase == "decode"
    ]
    return max((abs(a - b) / min(a, b) for a, b in pairs), default=0.0)


def in_words(speedup: float, *, promised: float, noise: float) -> str:
    """What a speed-up over bf16 came to, beside the one that bytes promise.

    Differences within ``noise`` (relative, A/A) are none.
    """
    if speedup < 1 - noise:
        return "slower than bf16"
    if speedup <= 1 + noise:
        return "no faster than bf16, within the noise"
    if speedup < promised * (1 - noise):
        return "faster, by less than the bytes promise"
    if speedup <= promised * (1 + noise):
        return "faster, as the bytes promise"
    return "faster than the bytes promise"
