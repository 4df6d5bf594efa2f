"""Money and energy per million tokens, with their denominators."""

from __future__ import annotations

import math
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError
from turbo_lab.metrics.metric import Quantity
from turbo_lab.metrics.summary import Summary

MILLION = 1_000_000
SECONDS_PER_HOUR = 3600
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class PowerModel:
    """Power of one replica in W: ``busy_w`` while it computes, ``idle_w`` while it is up and waits.

    ``idle_w`` None: nobody gave it; then only a range of energies is known. ``source``: where the
    figures come from. Real power between the two follows the load within a step, which this leaves
    out.
    """

    busy_w: float
    idle_w: float | None = None
    source: str = "given"

    def __post_init__(self) -> None:
        """Refuse powers that no machine has."""
        if not 0 < self.busy_w < math.inf:
            raise UsageError(f"busy_w is {self.busy_w}; allowed: a finite number above 0")
        if self.idle_w is not None and not 0 <= self.idle_w <= self.busy_w:
            raise UsageError(f"idle_w is {self.idle_w}; allowed: 0 to busy_w = {self.busy_w}")

    def energy_j(self, *, busy_s: float, up_s: float) -> float | None:
        """``busy_w * busy_s + idle_w * (up_s - busy_s)``; None where idle_w is unknown."""
        if self.idle_w is None:
            return None
        return self.busy_w * busy_s + self.idle_w * max(0.0, up_s - busy_s)

    def range_j(self, *, busy_s: float, up_s: float) -> tuple[float, float]:
        """Least and most energy: idle replicas draw nothing, or as much as busy ones."""
        return self.busy_w * busy_s, self.busy_w * max(busy_s, up_s)


def cost_per_million_tokens(
    summary: Summary, *, price_per_hour: float, devices: int = 1, currency: str = "USD"
) -> Quantity:
    """Price per hour x devices x run time / output tokens of the successful requests x 10^6.

    The whole run is paid for, idle time and failed requests too; only delivered output counts.
    Undefined where the server did not count the tokens.
    """
    if not price_per_hour > 0 or devices < 1:
        raise UsageError(f"price_per_hour={price_per_hour!r} and devices={devices!r} must be > 0")
    paid = price_per_hour * devices / SECONDS_PER_HOUR
    return _per_million(
        summary,
        "cost_per_million_output_tokens",
        f"{currency} per million output tokens",
        f"{price_per_hour:g} {currency}/h x {devices} devices x duration / delivered output tokens",
        paid * (summary.quantities["duration_s"].value or 0.0),
    )


def energy_per_million_tokens(summary: Summary, *, energy_j: float) -> Quantity:
    """Energy of the whole run / output tokens of the successful requests x 10^6, in kWh."""
    if not energy_j > 0:
        raise UsageError(f"energy_j={energy_j!r} must be above 0")
    return _per_million(
        summary,
        "energy_per_million_output_tokens",
        "kWh per million output tokens",
        f"{energy_j:g} J over the run / delivered output tokens",
        energy_j / JOULES_PER_KWH,
    )


def _per_million(summary: Summary, name: str, unit: str, definition: str, total: float) -> Quantity:
    tokens = summary.quantities["output_tokens"]
    if not tokens.value or not total:
        why = tokens.why_not if tokens.value is None else "no output tokens or no run time"
        return Quantity(name, unit, definition, None, why)
    return Quantity(name, unit, definition, total / tokens.value * MILLION)
