"""How far a quantised array is from the original: bounds before, measures after."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.arrays import as_float32
from turbo_lab.numerics.formats import number_format
from turbo_lab.numerics.integers import IntFormat
from turbo_lab.numerics.quantized import Quantized, dequantize, from_sets, to_sets

_FP32_SLACK = 2.0**-22  # a few roundings of the float32 arithmetic itself


def error_bound(stored: Quantized) -> np.ndarray:
    """Largest possible ``|x - dequantize(stored)|`` of every entry, float32, shape of the array.

    ``s * half_step(code)`` for rounding, plus what storing the scale rounded can clip at the end
    of the range (``span * ulp(s) / 2``), plus ``ulp(min) / 2`` for zero "value". For a plain
    conversion (granularity "none") it holds for ``|x| <= format.max``; beyond, it is the caller's.
    """
    scheme, kind = stored.scheme, stored.scheme.number
    codes = stored.codes
    if scheme.granularity == "none":
        return kind.half_step(codes)
    steps = to_sets(kind.half_step(codes), scheme).astype(np.float64)
    scales = stored.scale_values[..., None].astype(np.float64)
    span = kind.levels if isinstance(kind, IntFormat) else kind.max
    scale_kind = number_format(scheme.scale_dtype)
    bound = scales * steps + np.where(scales > 0, span * 0.5 * scale_kind.ulp(scales), 0.0)
    size = span * scales
    if scheme.zero == "value":
        low = stored.zero_values[..., None].astype(np.float64)
        bound, size = bound + 0.5 * scale_kind.ulp(low), size + np.abs(low)
    full = np.broadcast_to(bound + _FP32_SLACK * size, steps.shape)
    return from_sets(full, stored.shape, scheme)


@dataclass(frozen=True)
class ErrorSummary:
    """Error of an approximation. ``snr_db``: infinite without error; None for a zero signal."""

    max_abs: float
    mse: float
    snr_db: float | None
    relative: float | None


def error_summary(original: Any, approximation: Any) -> ErrorSummary:
    """Compare two arrays of one shape.

    ``mse = mean((x - y)^2)``; ``snr_db = 10 log10(mean(x^2) / mse)``;
    ``relative = |x - y|_2 / |x|_2``. Sums in float64. Raises UsageError for different shapes.
    """
    x, y = as_float32(original).astype(np.float64), as_float32(approximation).astype(np.float64)
    if x.shape != y.shape or x.size == 0:
        raise UsageError(f"shapes are {x.shape} and {y.shape}; they must be equal and not empty.")
    mse, power = float(np.mean((x - y) ** 2)), float(np.mean(x**2))
    if power == 0:
        return ErrorSummary(float(np.abs(x - y).max()), mse, None, None)
    snr = math.inf if mse == 0 else 10 * math.log10(power / mse)
    return ErrorSummary(float(np.abs(x - y).max()), mse, snr, math.sqrt(mse / power))


def uniform_mse(stored: Quantized) -> float:
    """Mean square error that rounding to a uniform grid predicts: ``mean(s^2) / 12``.

    Holds when many steps are in use, so that the rounding error is uniform over one step; an
    integer format only. Source: Bennett, "Spectra of quantized signals" (1948).
    """
    if not isinstance(stored.scheme.number, IntFormat):
        raise UsageError(f"{stored.scheme.format} has no uniform step; allowed: int8, int4, int2.")
    return float(np.mean(stored.scale_values.astype(np.float64) ** 2) / 12)


def round_trip(values: Any, stored: Quantized) -> ErrorSummary:
    """:func:`error_summary` of ``values`` against what ``stored`` gives back."""
    return error_summary(values, dequantize(stored))
