"""Quantise an array under a scheme, keep it packed, and give it back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.arrays import as_float32, require_finite, require_no_nan
from turbo_lab.numerics.formats import number_format
from turbo_lab.numerics.integers import IntFormat
from turbo_lab.numerics.pack import pack, unpack
from turbo_lab.numerics.schemes import Scheme, grouped_shape


@dataclass(frozen=True, eq=False)
class Quantized:
    """A quantised array as it is stored.

    ``payload``: packed codes (uint8, one dimension), C order of the array itself.
    ``scales``, ``zeros``: what is stored beside them, in the scheme's order (``axis`` last); bf16
    is kept as its 16-bit codes; ``zeros`` is packed codes for zero "code"; None where there are
    none. Read them through ``scale_values`` and ``zero_values``.
    """

    payload: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None
    shape: tuple[int, ...]
    scheme: Scheme

    @property
    def bytes(self) -> int:
        """Bytes of all stored arrays, counted from the arrays themselves."""
        return (
            self.payload.nbytes
            + self.scales.nbytes
            + (self.zeros.nbytes if self.zeros is not None else 0)
        )

    @property
    def count(self) -> int:
        """Values in the array."""
        return math.prod(self.shape)

    @property
    def codes(self) -> np.ndarray:
        """The unsigned codes in the array's shape."""
        flat = unpack(self.payload, bits=self.scheme.number.bits, count=self.count)
        return flat.reshape(self.shape)

    @property
    def scale_values(self) -> np.ndarray:
        """Scales as float32, shape of :func:`grouped_shape`."""
        return _widen(self.scales, dtype=self.scheme.scale_dtype)

    @property
    def zero_values(self) -> np.ndarray | None:
        """Zero points as float32: numbers of the format ("code") or values ("value")."""
        if self.zeros is None:
            return None
        if self.scheme.zero == "value":
            return _widen(self.zeros, dtype=self.scheme.scale_dtype)
        kind = self.scheme.number
        sets = grouped_shape(self.shape, scheme=self.scheme)
        return kind.decode(unpack(self.zeros, bits=kind.bits, count=math.prod(sets))).reshape(sets)


def quantize(values: Any, scheme: Scheme) -> Quantized:
    """Quantise numpy or torch values under ``scheme``.

    Rules, with r = the format's span (integers: ``2^bits - 1`` steps) and all arithmetic in
    float32: symmetric ``s = max|x| / (r / 2)``, ``code = clamp(rint(x / s))``; floats and NF4
    ``s = max|x| / largest value``; zero "code" ``s = (max(x, 0) - min(x, 0)) / r``,
    ``z = clamp(rint(lowest - min / s))``, ``code = clamp(rint(x / s + z))``; zero "value"
    ``s = (max - min) / r``, ``code = clamp(rint((x - min) / s))``. A set of zeros gets scale 0.
    The integer rules are those of compressed-tensors, bit for bit.

    Raises UsageError for NaN, for infinities under a scheme with scales, and for a scale that
    its dtype cannot hold.
    """
    x = as_float32(values)
    kind = scheme.number
    if scheme.granularity == "none":
        require_no_nan(x)
        codes = kind.encode(x, saturate=scheme.saturate)
        return Quantized(pack(codes, bits=kind.bits), _narrow(np.zeros(0), scheme), None,
                         x.shape, scheme)  # fmt: skip
    require_finite(x)
    grouped_shape(x.shape, scheme=scheme)  # refuses an axis that is not there
    sets = to_sets(x, scheme)
    scales, offsets = set_parameters(sets, scheme)
    codes = from_sets(_codes(sets, scales, offsets, scheme), x.shape, scheme)
    return Quantized(pack(codes, bits=kind.bits), _narrow(scales, scheme),
                     _store_zeros(offsets, scheme), x.shape, scheme)  # fmt: skip


def dequantize(stored: Quantized) -> np.ndarray:
    """The float32 array that the codes stand for, in the original shape.

    ``s * code``, ``s * (code - z)`` or ``s * code + min``, after the scheme's ``zero``.
    """
    scheme, kind = stored.scheme, stored.scheme.number
    if scheme.granularity == "none":
        return kind.decode(stored.codes)
    sets = to_sets(kind.decode(stored.codes), scheme)
    out = _set_values(sets, stored.scale_values, stored.zero_values, scheme)
    return from_sets(out, stored.shape, scheme)


def snap(
    values: np.ndarray, scheme: Scheme, *, scales: np.ndarray, zeros: np.ndarray | None = None
) -> np.ndarray:
    """Each value moved to the nearest point of its own grid: quantised and given back at once.

    ``values`` [sets, members] share a scale along the last dimension; ``scales`` and ``zeros``
    have one entry per set, as :func:`set_parameters` gives them. Float32.
    """
    codes = _codes(values, scales, zeros, scheme)
    return _set_values(scheme.number.decode(codes), scales, zeros, scheme)


def with_scales(
    values: Any, scheme: Scheme, *, scales: np.ndarray, zeros: np.ndarray | None = None
) -> Quantized:
    """Quantise with given scales (and zero points) instead of computed ones.

    For methods that search scales or round in another order. Shapes as :func:`grouped_shape`;
    ``scales`` are rounded to the scheme's dtype first. Raises UsageError for a wrong shape.
    """
    x = as_float32(values)
    require_finite(x)
    expected = grouped_shape(x.shape, scheme=scheme)
    for name, array in (("scales", scales), ("zeros", zeros)):
        if array is not None and np.shape(array) != expected:
            raise UsageError(f"{name} have shape {np.shape(array)}; this scheme needs {expected}.")
    if (zeros is None) != scheme.symmetric:
        raise UsageError(f"zero is {scheme.zero!r}, zero points given: {zeros is not None}.")
    rounded = _widen(
        _narrow(np.asarray(scales, dtype=np.float32), scheme), dtype=scheme.scale_dtype
    )
    codes = _codes(to_sets(x, scheme), rounded, zeros, scheme)
    codes = from_sets(codes, x.shape, scheme)
    return Quantized(pack(codes, bits=scheme.number.bits), _narrow(rounded, scheme),
                     _store_zeros(zeros, scheme), x.shape, scheme)  # fmt: skip


def to_sets(x: np.ndarray, scheme: Scheme) -> np.ndarray:
    """(..., sets, members): what shares a scale lies in the last dimension.

    A short group is filled with its last value, which changes neither extreme.
    """
    if scheme.granularity == "tensor":
        return x.reshape(1, -1)
    last = np.moveaxis(x, scheme.axis, -1)
    if scheme.group_size is None:
        return last[..., None, :]
    short = -last.shape[-1] % scheme.group_size
    if short:
        last = np.pad(last, [(0, 0)] * (last.ndim - 1) + [(0, short)], mode="edge")
    return last.reshape(*last.shape[:-1], -1, scheme.group_size)


def from_sets(sets: np.ndarray, shape: tuple[int, ...], scheme: Scheme) -> np.ndarray:
    if scheme.granularity == "tensor":
        return sets.reshape(shape)
    length = shape[scheme.axis]
    last = sets.reshape(*sets.shape[:-2], -1)[..., :length]
    return np.moveaxis(last, -1, scheme.axis)


def set_parameters(sets: np.ndarray, scheme: Scheme) -> tuple[np.ndarray, np.ndarray | None]:
    """Scales (rounded to their dtype) and zero points of sets [..., members], both float32."""
    kind = scheme.number
    if sets.shape[-1] == 0:
        empty = np.zeros(sets.shape[:-1], dtype=np.float32)
        return empty, None if scheme.symmetric else empty
    low, high = sets.min(axis=-1), sets.max(axis=-1)
    if scheme.zero == "none":
        top = np.maximum(np.abs(low), np.abs(high))
        span = kind.levels / 2 if isinstance(kind, IntFormat) else kind.max
        return _scale(top, span, scheme), None
    if scheme.zero == "code":
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        scales = _scale(_width(low, high), kind.levels, scheme)
        start = np.divide(low, scales, out=np.zeros_like(low), where=scales > 0)
        return scales, np.rint(np.clip(kind.lowest - start, kind.lowest, kind.max))
    lowest = _round_to(low, scheme)
    return _scale(_width(lowest, high), kind.levels, scheme), lowest


def _width(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        width = high - low
    if np.isinf(width).any():
        raise UsageError("the range of the values overflows float32; scale them down first.")
    return width


def _scale(width: np.ndarray, span: float, scheme: Scheme) -> np.ndarray:
    """``width / span`` in the scale's dtype; never 0 unless the width is."""
    scales = _round_to(width / np.float32(span), scheme)
    smallest = np.float32(number_format(scheme.scale_dtype).smallest)
    return np.where((scales <= 0) & (width > 0), smallest, np.maximum(scales, 0))


def _round_to(values: np.ndarray, scheme: Scheme) -> np.ndarray:
    rounded = _widen(_narrow(values, scheme), dtype=scheme.scale_dtype)
    if np.isinf(rounded).any():
        kind = number_format(scheme.scale_dtype)
        raise UsageError(
            f"a scale or zero point of {np.abs(values).max():g} exceeds {scheme.scale_dtype} "
            f"(largest value {kind.max:g}); use scale_dtype 'bf16' or 'fp32'."
        )
    return rounded


def _codes(
    sets: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, scheme: Scheme
) -> np.ndarray:
    kind, wide = scheme.number, scales[..., None]
    if scheme.zero == "value":
        sets = sets - zeros[..., None]
    steps = np.divide(sets, wide, out=np.zeros_like(sets), where=wide > 0)
    if scheme.zero == "code":
        steps = steps + zeros[..., None]
    elif scheme.zero == "value":
        steps = np.rint(steps) + np.float32(kind.lowest)
    return kind.encode(steps, saturate=True)


def _set_values(
    sets: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, scheme: Scheme
) -> np.ndarray:
    wide, largest = scales[..., None], np.finfo(np.float32).max
    with np.errstate(over="ignore"):  # a scale rounded up may lead past float32's largest value
        if scheme.zero == "none":
            out = sets * wide
        elif scheme.zero == "code":
            out = (sets - zeros[..., None]) * wide
        else:
            out = (sets - np.float32(scheme.number.lowest)) * wide + zeros[..., None]
    return np.clip(out, -largest, largest)


def _store_zeros(zeros: np.ndarray | None, scheme: Scheme) -> np.ndarray | None:
    if zeros is None:
        return None
    if scheme.zero == "value":
        return _narrow(zeros, scheme)
    return pack(scheme.number.encode(zeros), bits=scheme.number.bits)


def _narrow(values: np.ndarray, scheme: Scheme) -> np.ndarray:
    """Values in the scale's dtype, as stored: float32, float16, or bf16 codes."""
    codes = number_format(scheme.scale_dtype).encode(values)
    views = {"fp32": np.float32, "fp16": np.float16, "bf16": np.uint16}
    return codes.view(views[scheme.scale_dtype])


def _widen(stored: np.ndarray, *, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        return number_format(dtype).decode(stored)
    return stored.astype(np.float32)
