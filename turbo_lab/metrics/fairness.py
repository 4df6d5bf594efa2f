"""Was the service shared fairly? One number from what each user got."""

from __future__ import annotations

from collections.abc import Sequence

from turbo_lab.core.errors import UsageError


def jain_index(shares: Sequence[float]) -> float:
    """``(sum x)^2 / (n * sum x^2)``: 1 when all got the same, 1/n when one got everything.

    Source: Jain, Chiu, Hawe, A quantitative measure of fairness, DEC-TR-301, 1984. Raises
    UsageError for no shares, negative ones, or nothing to share.
    """
    values = [float(x) for x in shares]
    if not values or any(x < 0 for x in values) or not any(values):
        raise UsageError(f"shares are {values}; give at least one, none negative, not all 0")
    return sum(values) ** 2 / (len(values) * sum(x * x for x in values))
