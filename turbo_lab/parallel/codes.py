"""Codes that an exchange sends instead of float32 values, and the error that they must make.

The wire formats are those that ``network.compression.message_bytes`` counts. numpy only, one array
of bytes per message, so that a code can be gathered by any backend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.network.compression import INT8_BLOCK
from turbo_lab.numerics.error import uniform_mse
from turbo_lab.numerics.quantized import Quantized, dequantize, quantize
from turbo_lab.numerics.schemes import Scheme

GATHERED = ("int8", "topk")
SUMMED = ("fp32", "fp16")
FORMS = (*SUMMED, *GATHERED)
INT8 = Scheme("int8", granularity="group", group_size=INT8_BLOCK)
OUTLIER_EVERY, OUTLIER_TIMES = 128, 20.0
FP16_ROUNDING = 2.0**-11  # largest relative error of rounding to 11 significant bits


@dataclass(frozen=True)
class Code:
    """One message: ``wire`` bytes that stand for ``count`` float32 values."""

    wire: np.ndarray
    count: int
    form: str


def require_form(form: str) -> str:
    """The form itself. Raises UsageError for an unknown one."""
    if form not in FORMS:
        raise UsageError(f"There is no format {form!r}.{did_you_mean(form, list(FORMS))}")
    return form


def rank_values(count: int, *, rank: int, seed: int = 0) -> np.ndarray:
    """What one rank adds: normal float32 values, every 128th channel twenty times as large.

    Hidden states look like that: a few channels stick out, in the same places for all tokens.
    """
    values = np.random.default_rng([seed, rank]).standard_normal(count, dtype=np.float32)
    values[::OUTLIER_EVERY] *= OUTLIER_TIMES
    return values


def kept_count(count: int, kept_share: float) -> int:
    """How many values top-k keeps. Raises UsageError for a share outside 0 to 1."""
    if not 0 < kept_share <= 1:
        raise UsageError(f"kept_share is {kept_share}; allowed: above 0 up to 1")
    return math.ceil(count * kept_share)


def encode(values: np.ndarray, *, form: str, kept_share: float = 0.01) -> Code:
    """Code one float32 array. Raises UsageError for a form that is summed, not gathered."""
    if require_form(form) not in GATHERED:
        raise UsageError(f"{form} is summed on the way; coded forms: {', '.join(GATHERED)}")
    if form == "int8":
        stored = quantize(values, INT8)
        parts = stored.payload, stored.scales
    else:
        keep = kept_count(values.size, kept_share)
        places = np.argpartition(np.abs(values), values.size - keep)[values.size - keep :]
        parts = values[places], places.astype(np.uint32)
    wire = np.concatenate([np.ascontiguousarray(part).view(np.uint8).ravel() for part in parts])
    return Code(wire, values.size, form)


def add_decoded(code: Code, total: np.ndarray) -> None:
    """Add what the code stands for to ``total``, in place."""
    if code.form == "int8":
        scales = code.wire[code.count :].view(np.float32)
        total += dequantize(Quantized(code.wire[: code.count], scales, None, (code.count,), INT8))
        return
    keep = code.wire.size // 8
    places = code.wire[4 * keep :].view(np.uint32)
    total[places] += code.wire[: 4 * keep].view(np.float32)  # a message names a place once


def expected_error(arrays: list[np.ndarray], *, form: str, kept_share: float = 0.01) -> float:
    """Relative error of the summed result, ``|x - y| / |x|``, before anything is sent.

    - fp16: an upper bound, every rank's rounding and one rounding per addition, 2^-11 each.
    - int8: Bennett's ``s^2 / 12`` per rank, independent of each other.
    - topk: what the largest values leave out.
    """
    require_form(form)
    total = np.sum(arrays, axis=0, dtype=np.float64)
    power = float(np.mean(total**2))
    if form == "fp32":
        return 0.0
    if form == "fp16":
        size = sum(float(np.mean(a.astype(np.float64) ** 2)) for a in arrays) + power
        return FP16_ROUNDING * math.sqrt(size / power)
    if form == "int8":
        return math.sqrt(sum(uniform_mse(quantize(a, INT8)) for a in arrays) / power)
    left = np.zeros_like(total)
    for array in arrays:
        keep = kept_count(array.size, kept_share)
        rest = array.copy()
        rest[np.argpartition(np.abs(array), array.size - keep)[array.size - keep :]] = 0
        left += rest
    return math.sqrt(float(np.mean(left**2)) / power)
