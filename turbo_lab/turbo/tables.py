"""A merge in fixed point with tables alone, as a switch without a multiplier can do it.

The public artifact of the Turbo paper shows the parts: 8-bit values, an 8-bit base-2 weight gamma,
one table with key ``delta`` for the addend and a 6-bit weight code, one table of products. It
leaves the meaning of the bits open. :class:`TableMachine` fixes it, in its docstring.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError

LIMITS = {"value_bits": (2, 12), "gamma_bits": (2, 12), "weight_bits": (1, 10)}
Codes = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class TableMachine:
    """Merges coded partial results; every step is a look-up, a compare, an add or a subtract.

    What the artifact leaves open and what is fixed here:

    - **Values** are signed: code ``v`` in ``-2^(value_bits-1) .. 2^(value_bits-1) - 1`` means
      ``v * scale``, with one static scale per layer and head. Coding uses the symmetric part only
      (without the lowest code).
    - **Gamma** is unsigned with ``f = gamma_fraction_bits`` fraction bits and a static offset per
      layer and head: code ``g`` in ``0 .. 2^gamma_bits - 1`` means ``offset + g * 2^-f`` in base-2
      logarithms. Code 0 also stands for all that is lighter, an empty part included.
    - **Weight code** ``c`` in ``0 .. 2^weight_bits - 1`` of the smaller part means the weight
      ``c / (2 (2^weight_bits - 1))``: from 0 to exactly one half. The bigger part has the rest.
    - **Rounding** is to nearest, ties to even, everywhere: in coding, in all tables.
    - **Saturation**: sums of values stay in the signed range, sums of gamma at the largest code.
    - **Equal gammas**: the first argument counts as the bigger part. Both weights are then one
      half, so the result does not depend on it.

    Tables: ``2^gamma_bits`` entries of addend and weight code with key ``delta``; ``2^(value_bits +
    weight_bits + 1)`` products with key (value, weight code, side).

    Raises:
        UsageError: widths beyond 2-12 bits (weights 1-10), or more fraction bits than gamma bits.
    """

    value_bits: int = 8
    gamma_bits: int = 8
    gamma_fraction_bits: int = 4
    weight_bits: int = 6

    def __post_init__(self) -> None:
        """Refuse widths for which there are no tables."""
        for name in (*LIMITS, "gamma_fraction_bits"):
            if not isinstance(found := getattr(self, name), int):
                raise UsageError(f"{name} is {found!r}; allowed: a whole number of bits")
        for name, (low, high) in LIMITS.items():
            if not low <= (found := getattr(self, name)) <= high:
                raise UsageError(f"{name} is {found}; allowed: {low} to {high}")
        if not 0 <= self.gamma_fraction_bits <= self.gamma_bits:
            raise UsageError(
                f"gamma_fraction_bits is {self.gamma_fraction_bits}; allowed: 0 to gamma_bits, "
                f"which is {self.gamma_bits}"
            )

    @property
    def largest_value(self) -> int:
        """Largest value code; coding uses its negative as the lowest."""
        return (1 << (self.value_bits - 1)) - 1

    @property
    def largest_gamma(self) -> int:
        """Largest gamma code."""
        return (1 << self.gamma_bits) - 1

    @property
    def gamma_step(self) -> float:
        """Base-2 logarithm that one gamma code is worth."""
        return 2.0**-self.gamma_fraction_bits

    @property
    def weight_whole(self) -> int:
        """The weight code that would mean 1: twice the largest one."""
        return 2 * ((1 << self.weight_bits) - 1)

    @cached_property
    def addends(self) -> np.ndarray:
        """Table 1, first column: gamma codes to add to the larger gamma, by ``delta``."""
        delta = np.arange(self.largest_gamma + 1) * self.gamma_step
        return np.rint(np.log2(1 + np.exp2(-delta)) / self.gamma_step).astype(np.int16)

    @cached_property
    def weight_codes(self) -> np.ndarray:
        """Table 1, second column: weight code of the smaller part, by ``delta``."""
        delta = np.arange(self.largest_gamma + 1) * self.gamma_step
        return np.rint(self.weight_whole / (1 + np.exp2(delta))).astype(np.int16)

    @cached_property
    def products(self) -> np.ndarray:
        """Table 2, (2, weight codes, values): side 0 is the smaller part, side 1 the bigger.

        The value axis is offset-binary: index 0 is the lowest value.
        """
        values = np.arange(-self.largest_value - 1, self.largest_value + 1, dtype=np.int64)
        codes = np.arange(self.weight_whole // 2 + 1, dtype=np.int64)[:, None]
        sides = np.stack([codes * values, (self.weight_whole - codes) * values])
        return _divided(sides, self.weight_whole).astype(np.int16)

    @cached_property
    def _flat_products(self) -> np.ndarray:
        return self.products.reshape(-1)

    @property
    def table_entries(self) -> dict[str, int]:
        """Entries of both tables: what a switch must hold in memory."""
        return {"delta": self.largest_gamma + 1, "products": int(self.products.size)}

    def code_values(self, values: Any, *, scale: Any) -> np.ndarray:
        """Value codes of real values, int16; ``scale`` broadcasts against them."""
        top = self.largest_value
        return np.clip(np.rint(np.asarray(values) / scale), -top, top).astype(np.int16)

    def real_values(self, codes: Any, *, scale: Any) -> np.ndarray:
        """What value codes mean, float64."""
        return np.asarray(codes, dtype=np.float64) * scale

    def code_gamma(self, log2_weights: Any, *, offset: Any) -> np.ndarray:
        """Gamma codes of base-2 weights, int16; ``-inf`` becomes code 0."""
        steps = (np.asarray(log2_weights, dtype=np.float64) - offset) / self.gamma_step
        return np.rint(np.clip(steps, 0, self.largest_gamma)).astype(np.int16)

    def real_gamma(self, codes: Any, *, offset: Any) -> np.ndarray:
        """What gamma codes mean, float64."""
        return np.asarray(codes, dtype=np.float64) * self.gamma_step + offset

    def merge_pair(
        self, values_a: np.ndarray, gamma_a: np.ndarray, values_b: np.ndarray, gamma_b: np.ndarray
    ) -> Codes:
        """Merge two coded parts.

        Args:
            values_a, values_b: value codes (..., dim), integers.
            gamma_a, gamma_b: gamma codes (...), integers.

        Returns:
            ``(values, gamma)``, int16. The indices are not checked: the caller codes them.
        """
        difference = np.asarray(gamma_a, dtype=np.int32) - gamma_b
        first_is_bigger = difference >= 0
        delta = np.abs(difference)
        top = np.where(first_is_bigger, gamma_a, gamma_b)
        gamma = np.minimum(top + self.addends[delta], self.largest_gamma)
        span, half = 1 << self.value_bits, 1 << (self.value_bits - 1)
        code = self.weight_codes[delta].astype(np.int32)
        small, big = code * span + half, (code + self.weight_whole // 2 + 1) * span + half
        row_a = np.where(first_is_bigger, big, small)[..., None]
        row_b = np.where(first_is_bigger, small, big)[..., None]
        total = self._flat_products[row_a + values_a] + self._flat_products[row_b + values_b]
        return (
            np.clip(total, -self.largest_value - 1, self.largest_value).astype(np.int16),
            gamma.astype(np.int16),
        )

    def merge(self, values: np.ndarray, gammas: np.ndarray, *, tree: str = "chain") -> Codes:
        """Merge n coded parts, values (n, ..., dim) and gammas (n, ...).

        ``tree``: ``chain`` merges each part into what is there, as a switch does with packets one
        by one; ``balanced`` merges neighbours pairwise. The results differ by roundings.
        """
        if tree not in ("chain", "balanced"):
            raise UsageError(f"tree is {tree!r}; allowed: chain, balanced")
        parts = list(zip(values, gammas, strict=True))
        while len(parts) > 1:
            if tree == "chain":
                parts = [self.merge_pair(*parts[0], *parts[1]), *parts[2:]]
            else:
                pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
                parts = [self.merge_pair(*p[0], *p[1]) if len(p) == 2 else p[0] for p in pairs]
        first, gamma = parts[0]
        return np.asarray(first, dtype=np.int16), np.asarray(gamma, dtype=np.int16)


def _divided(numbers: np.ndarray, by: int) -> np.ndarray:
    """Integers over an integer, to the nearest whole number, ties to even, exactly."""
    low = np.floor_divide(numbers, by)
    twice = 2 * (numbers - low * by)
    up = (twice > by) | ((twice == by) & (low % 2 != 0))
    return low + up


@dataclass(frozen=True)
class Calibration:
    """Static scales and offsets of one layer, one entry per head, found offline on other text.

    ``largest``: largest magnitude of a partial output's value. ``top_gamma``, ``low_gamma``:
    largest and smallest gamma of the whole context; the codes reach ``headroom`` above the largest
    (longer contexts weigh more).
    """

    largest: np.ndarray
    top_gamma: np.ndarray
    headroom: float = 1.0
    low_gamma: np.ndarray | None = None

    def span(self) -> float:
        """Base-2 range that gamma codes must cover: of the head that needs most."""
        if self.low_gamma is None:
            raise UsageError("this calibration has no low_gamma; calibrate on text")
        return float((self.top_gamma + self.headroom - self.low_gamma).max())

    def scale(self, machine: TableMachine) -> np.ndarray:
        """Value of one code step per head: the largest magnitude gets the largest code."""
        return np.maximum(self.largest, 1e-12) / machine.largest_value

    def offset(self, machine: TableMachine) -> np.ndarray:
        """Gamma that code 0 means, per head."""
        span = machine.largest_gamma * machine.gamma_step
        return self.top_gamma + self.headroom - span


def most_fraction_bits(span: float, *, gamma_bits: int = 8) -> int:
    """Fraction bits of gamma that still leave a range of ``span``: ``floor(log2((2^b - 1)/span))``.

    One more, and the lightest contexts fall to code 0, where all parts weigh the same.
    Raises UsageError where not even whole numbers reach.
    """
    bits = int(np.floor(np.log2(((1 << gamma_bits) - 1) / span)))
    if bits < 0:
        raise UsageError(f"{gamma_bits} bits of gamma do not reach over a span of {span:.0f}")
    return min(bits, gamma_bits)
