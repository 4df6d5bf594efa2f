"""A convention is data: which requests count, and one rule per metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from turbo_lab.metrics.percentiles import LINEAR, PercentileRule, linear
from turbo_lab.metrics.timeline import Timeline

Values = tuple[float, ...]


@dataclass(frozen=True)
class Rule:
    """One metric of a convention.

    ``values`` maps a counted request to its samples; an empty tuple means undefined there.
    ``weights``, where given, maps it to one weight per sample (for means that are weighted).
    """

    name: str
    definition: str
    values: Callable[[Timeline], Values]
    unit: str = "s"
    weighting: str = "one sample per request"
    weights: Callable[[Timeline], Values] | None = None


@dataclass(frozen=True)
class SloRule:
    """How a tool counts requests that meet their objectives.

    ``metrics`` maps an objective's name to the rule it is checked against. ``missing`` says what a
    request without that metric is: ``not applicable`` (met), ``missed``, ``excluded`` from the
    count, or ``zero`` (taken as 0, so met). ``of`` is the denominator of the attained share.
    """

    metrics: Mapping[str, str]
    missing: Literal["not applicable", "missed", "excluded", "zero"]
    of: Literal["attempted", "succeeded"]


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
    percentile: PercentileRule = linear
    slo: SloRule | None = None

    def rule(self, name: str) -> Rule:
        """The rule called ``name``. Raises KeyError."""
        return {rule.name: rule for rule in self.rules}[name]


def single(function: Callable[[Timeline], float | None]) -> Callable[[Timeline], Values]:
    """Turn a per-request function that may be undefined into a rule's ``values``."""

    def values(timeline: Timeline) -> Values:
        value = function(timeline)
        return () if value is None else (value,)

    return values
