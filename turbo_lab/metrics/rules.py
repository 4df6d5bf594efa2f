"""A convention is data: which requests count, and one rule per metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turbo_lab.metrics.percentiles import LINEAR
from turbo_lab.metrics.timeline import Timeline

Values = tuple[float, ...]


@dataclass(frozen=True)
class Rule:
    """One metric of a convention.

    ``values`` maps a counted request to its samples; an empty tuple means undefined there.
    ``weights``, where given, maps it to one weight per sample (for means that are weighted).
    """

    name: str
    unit: str
    definition: str
    values: Callable[[Timeline], Values]
    weighting: str = "one sample per request"
    weights: Callable[[Timeline], Values] | None = None


@dataclass(frozen=True)
class RunTotals:
    """What throughput is computed from: counted requests, their tokens, and the run's time."""

    requests: int
    output_tokens: int | None
    input_tokens: int | None
    duration_s: float | None


@dataclass(frozen=True)
class Convention:
    """How one tool turns a stream into numbers; ``source`` says where its rule was read."""

    name: str
    version: str
    source: str
    succeeded: Callable[[Timeline], bool]
    rules: tuple[Rule, ...]
    output_tokens: Callable[[Timeline], int | None]
    percentile_method: str = LINEAR
    percentile: Callable[[Sequence[float], float], float | None] | None = None
    ignores: str = ""


def single(function: Callable[[Timeline], float | None]) -> Callable[[Timeline], Values]:
    """Turn a per-request function that may be undefined into a rule's ``values``."""

    def values(timeline: Timeline) -> Values:
        value = function(timeline)
        return () if value is None else (value,)

    return values
