"""What a foreign result file holds, and small helpers to read it safely."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turbo_lab.core.errors import RecordError


@dataclass(frozen=True)
class Foreign:
    """One run of another client, in seconds and rates.

    ``samples``: per metric where the tool kept them, else empty. ``summary``: its own statistics
    by metric (``{"ttft_s": {"median": 0.1, "p99": 0.3}}``), for metrics without samples.
    """

    convention: str
    version: str | None
    model: str | None
    succeeded: int | None
    failed: int | None
    settings: Mapping[str, Any]
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)
    summary: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)


def number(value: Any) -> float | None:
    """A finite number, else None."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if good and math.isfinite(value) else None


def numbers(values: Any, *, scale: float = 1.0) -> list[float]:
    """The finite numbers of a list, scaled; anything else gives none."""
    items = values if isinstance(values, list) else []
    return [n * scale for v in items if (n := number(v)) is not None]


def mapping(value: Any, *, what: str) -> Mapping[str, Any]:
    """The value, which must be a JSON object. Raises RecordError naming what is missing."""
    if not isinstance(value, Mapping):
        raise RecordError(f"the file has no {what}: is it a result of this tool?")
    return value


def filled(pairs: Iterable[tuple[str, Sequence[float]]]) -> dict[str, Sequence[float]]:
    """Only the metrics that have samples."""
    return {name: values for name, values in pairs if values}
