"""Binary floating point of any width: codes, values, step, and what happens beyond the range."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from turbo_lab.numerics.arrays import as_float32


def code_dtype(bits: int) -> np.dtype:
    """The unsigned numpy type that holds codes of so many bits."""
    return np.dtype(np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32)


@dataclass(frozen=True)
class FloatFormat:
    """Binary floating point: sign, exponent, mantissa, with denormals.

    ``special``: what the all-ones exponent means. "ieee": infinities and NaNs (fp16, bf16, e5m2).
    "fn": finite values, only the all-ones mantissa is NaN, no infinity (e4m3fn, the OCP format).
    "fnuz": finite values, one NaN in the place of minus zero (AMD's MI300 format).
    Overflow beyond the largest value (after rounding) becomes infinity where there is one, else
    NaN; with ``saturate`` it becomes the largest value. The OCP specification allows both:
    ml_dtypes never saturates; torch 2.13 saturates e4m3fn, earlier releases gave NaN, and no
    torch saturates the others. NaN stays NaN in ``encode``.
    Sources: IEEE 754; OCP 8-bit floating point specification 1.0; pytorch pull request 178817.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    special: Literal["ieee", "fn", "fnuz"] = "ieee"

    @property
    def bits(self) -> int:
        """Bits of one value, the sign included."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def max_code(self) -> int:
        """Code of the largest finite value."""
        top = (1 << (self.bits - 1)) - 1
        if self.special == "ieee":
            return top - (1 << self.mantissa_bits)
        return top - 1 if self.special == "fn" else top

    @property
    def nan_code(self) -> int:
        """The positive NaN with all bits set (fnuz: the only one)."""
        return (1 << (self.bits - 1)) - (self.special != "fnuz")

    @property
    def overflow(self) -> Literal["inf", "nan"]:
        """What values beyond the largest become without saturation."""
        return "inf" if self.special == "ieee" else "nan"

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal value, shared by all denormals."""
        return 1 - self.bias

    @property
    def max(self) -> float:
        """Largest finite value."""
        return float(self._value(np.array(self.max_code)))

    @property
    def lowest(self) -> float:
        """Most negative finite value."""
        return -self.max

    @property
    def smallest_normal(self) -> float:
        """Smallest positive value with full precision."""
        return 2.0**self.min_exponent

    @property
    def smallest(self) -> float:
        """Smallest positive value of all, a denormal; also the step between denormals."""
        return 2.0 ** (self.min_exponent - self.mantissa_bits)

    @property
    def epsilon(self) -> float:
        """Step from 1 to the next value: ``2^-mantissa_bits``."""
        return 2.0**-self.mantissa_bits

    def ulp(self, values: Any) -> np.ndarray:
        """Step between neighbours at ``|value|``: ``2^(max(exponent, min_exponent) - mantissa)``.

        Inside the range only; zero gives the step between denormals.
        """
        magnitude = np.abs(as_float32(values)).astype(np.float64)
        return np.ldexp(1.0, self._exponent(magnitude) - self.mantissa_bits)

    def encode(self, values: Any, *, saturate: bool = False) -> np.ndarray:
        """Codes of the nearest values, ties to even; shape as given, unsigned integers."""
        x = as_float32(values)
        with np.errstate(invalid="ignore"):  # widening a signalling NaN
            magnitude = np.abs(x).astype(np.float64)
        finite = np.where(np.isfinite(magnitude), magnitude, 0.0)
        exponent = self._exponent(finite)
        steps = np.rint(np.ldexp(finite, self.mantissa_bits - exponent))
        # A carry out of the mantissa lands in the exponent by itself.
        codes = ((exponent + (self.bias - 1)) << self.mantissa_bits) + steps.astype(np.int64)
        over = np.isinf(magnitude) | (codes > self.max_code)
        codes = np.where(over, self._overflow_code(saturate), codes)
        nan = np.isnan(magnitude) | (codes == self.nan_code if self.special == "fnuz" else False)
        return self._with_sign(codes, np.signbit(x), np.asarray(nan))

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """The float32 value of each code, exact."""
        return self._table[np.asarray(codes)] if self.bits <= 16 else self._value(codes)

    def half_step(self, codes: np.ndarray) -> np.ndarray:
        """Half the step at the value of each code: the bound of rounding to nearest."""
        value = np.where(np.isfinite(v := self.decode(codes)), v, 0.0)
        return (0.5 * self.ulp(value)).astype(np.float32)

    def _exponent(self, magnitude: np.ndarray) -> np.ndarray:
        exponent = np.frexp(magnitude)[1].astype(np.int64) - 1
        return np.where(magnitude == 0, self.min_exponent, np.maximum(exponent, self.min_exponent))

    def _overflow_code(self, saturate: bool) -> int:
        if saturate:
            return self.max_code
        return self.max_code + 1 if self.special == "ieee" else self.nan_code

    def _with_sign(self, codes: np.ndarray, negative: np.ndarray, nan: np.ndarray) -> np.ndarray:
        codes = np.where(nan, self.nan_code, codes)
        if self.special == "fnuz":  # neither minus zero nor a signed NaN exists
            negative = negative & (codes != 0) & (codes != self.nan_code)
        return (codes | (negative.astype(np.int64) << (self.bits - 1))).astype(
            code_dtype(self.bits)
        )

    @cached_property
    def _table(self) -> np.ndarray:
        return self._value(np.arange(1 << self.bits))

    def _value(self, codes: np.ndarray) -> np.ndarray:
        codes = np.asarray(codes).astype(np.int64)
        sign = np.where(codes >> (self.bits - 1) & 1, -1.0, 1.0)
        body = codes & ((1 << (self.bits - 1)) - 1)
        field, mantissa = body >> self.mantissa_bits, body & ((1 << self.mantissa_bits) - 1)
        normal = mantissa + np.where(field > 0, 1 << self.mantissa_bits, 0)
        power = np.maximum(field, 1) - self.bias - self.mantissa_bits
        value = sign * np.ldexp(normal.astype(np.float64), power)
        if self.special == "fnuz":
            return np.where(codes == self.nan_code, np.nan, value).astype(np.float32)
        special = np.where(body == self.max_code + 1, sign * np.inf, np.nan)
        special = special if self.special == "ieee" else np.full_like(value, np.nan)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.where(body > self.max_code, special, value).astype(np.float32)
