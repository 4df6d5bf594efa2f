"""The precision dividend and the method's: what 16 bits give anyway, and what is left to claim.

A paper that compares its 4-bit method with fp32 counts a factor of two that every 16-bit server
has already. The factors multiply: fp32 to 16 bits, times 16 bits to the method.
"""

from __future__ import annotations

from dataclasses import dataclass

from turbo_lab.core.errors import UsageError


@dataclass(frozen=True)
class Dividend:
    """A gain taken apart. ``total = precision * method``; above 1 is better."""

    quantity: str
    total: float
    precision: float
    method: float


def split_gain(
    quantity: str, *, fp32: float, sixteen_bit: float, method: float, larger_is_better: bool
) -> Dividend:
    """Split the gain of a method over fp32 at the 16-bit baseline.

    ``precision = fp32 / sixteen_bit`` and ``method = sixteen_bit / method`` for bytes and times;
    the inverse for rates. The three values have one unit. Raises UsageError for one that is not
    positive.
    """
    values = {"fp32": fp32, "sixteen_bit": sixteen_bit, "method": method}
    for name, value in values.items():
        if not value > 0:
            raise UsageError(f"{quantity}: {name} is {value}; all three must be above 0")
    precision, rest = fp32 / sixteen_bit, sixteen_bit / method
    if larger_is_better:
        precision, rest = 1 / precision, 1 / rest
    return Dividend(quantity, precision * rest, precision, rest)
