"""Money and energy per million tokens, with their denominators."""

from __future__ import annotations

from turbo_lab.core.errors import UsageError
from turbo_lab.metrics.metric import Quantity
from turbo_lab.metrics.summary import Summary

MILLION = 1_000_000
SECONDS_PER_HOUR = 3600


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
        energy_j / 3.6e6,
    )


def _per_million(summary: Summary, name: str, unit: str, definition: str, total: float) -> Quantity:
    tokens = summary.quantities["output_tokens"]
    if not tokens.value or not total:
        why = tokens.why_not if tokens.value is None else "no output tokens or no run time"
        return Quantity(name, unit, definition, None, why)
    return Quantity(name, unit, definition, total / tokens.value * MILLION)
