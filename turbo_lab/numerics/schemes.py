"""Schemes: which values share a scale, how scale and zero point are stored, and the bytes of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.numerics.floats import FloatFormat
from turbo_lab.numerics.formats import NumberFormat, number_format
from turbo_lab.numerics.integers import IntFormat
from turbo_lab.numerics.pack import packed_bytes

Granularity = Literal["none", "tensor", "channel", "token", "group"]
Zero = Literal["none", "code", "value"]
ScaleDtype = Literal["fp32", "fp16", "bf16"]


@dataclass(frozen=True)
class Scheme:
    """How an array becomes codes.

    ``format``: a name of :func:`turbo_lab.numerics.formats.number_format`.
    ``granularity``: what shares a scale.
      "none": a plain conversion without scales (fp16, bf16, fp8);
      "tensor": everything;
      "channel" and "token": all values along ``axis``; every other index has its own scale.
      A weight matrix (outputs, inputs) per output channel is axis -1. Keys of the layout
      (..., tokens, head_dim) per channel are axis -2, values per token are axis -1;
      "group": ``group_size`` neighbours along ``axis``, the last group may be shorter.
    ``zero``: "none" is symmetric around zero; "code" is asymmetric with a zero point of the
    format's own width, packed (the range is widened to hold zero, as GPTQ, AWQ and
    compressed-tensors do); "value" is asymmetric with the smallest value stored in the scale's
    dtype (as KIVI does). Asymmetric needs an integer format.
    ``scale_dtype``: fp32, fp16 or bf16; the scale is rounded to it before values are divided.
    ``saturate``: for granularity "none" only: beyond the largest value the largest value, else
    the format's own rule (infinity or NaN). Schemes with scales always saturate.
    """

    format: str
    granularity: Granularity = "tensor"
    axis: int = -1
    group_size: int | None = None
    zero: Zero = "none"
    scale_dtype: ScaleDtype = "fp32"
    saturate: bool = True

    def __post_init__(self) -> None:
        """Refuse combinations that mean nothing."""
        kind = number_format(self.format)
        for name, allowed in (("granularity", Granularity), ("zero", Zero),
                              ("scale_dtype", ScaleDtype)):  # fmt: skip
            value = getattr(self, name)
            if value not in get_args(allowed):
                raise UsageError(
                    f"{name} is {value!r}.{did_you_mean(str(value), list(get_args(allowed)))}"
                )
        if (self.granularity == "group") != (self.group_size is not None):
            raise UsageError(
                f"group_size is {self.group_size} with granularity {self.granularity!r}; "
                "granularity 'group' needs a size, and only that one takes it."
            )
        if self.group_size is not None and self.group_size < 1:
            raise UsageError(f"group_size is {self.group_size}; allowed: whole numbers from 1.")
        if self.granularity == "none" and not isinstance(kind, FloatFormat):
            raise UsageError(
                f"{self.format} without a scale holds no ordinary values; choose granularity "
                "'tensor', 'channel', 'token' or 'group'."
            )
        if self.granularity != "none" and kind.bits > 8:
            raise UsageError(
                f"{self.format} has range enough and takes no scale; choose granularity 'none'."
            )
        if self.zero != "none" and not isinstance(kind, IntFormat):
            raise UsageError(
                f"zero is {self.zero!r} with {self.format}; a zero point needs int8, int4 or int2."
            )

    @property
    def number(self) -> NumberFormat:
        """The number format."""
        return number_format(self.format)

    @property
    def symmetric(self) -> bool:
        """True when the codes lie around zero and no zero point is stored."""
        return self.zero == "none"

    @property
    def label(self) -> str:
        """Short text for tables, e.g. ``int4 group 64 asymmetric, fp16 scales``."""
        if self.granularity == "none":
            return self.format
        size = f" {self.group_size}" if self.group_size else ""
        sides = "" if self.symmetric else " asymmetric"
        return f"{self.format} {self.granularity}{size}{sides}, {self.scale_dtype} scales"


def grouped_shape(shape: tuple[int, ...], *, scheme: Scheme) -> tuple[int, ...]:
    """Shape of the scales, ``axis`` moved to the end: one entry per set of values that share one.

    Raises UsageError for an axis that the shape does not have, or an empty one.
    """
    if scheme.granularity == "none":
        return (0,)
    if scheme.granularity == "tensor":
        return (1,)
    if not -len(shape) <= scheme.axis < len(shape):
        raise UsageError(
            f"axis is {scheme.axis}, and the array has shape {shape}; "
            f"allowed: {-len(shape)} to {len(shape) - 1}."
        )
    axis = scheme.axis % len(shape)
    rest = shape[:axis] + shape[axis + 1 :]
    return (*rest, -(-shape[axis] // (scheme.group_size or max(shape[axis], 1))))


@dataclass(frozen=True)
class StoredBytes:
    """Bytes of a quantised array by part."""

    payload: int
    scales: int
    zeros: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.payload + self.scales + self.zeros


def stored_bytes(shape: tuple[int, ...], *, scheme: Scheme) -> StoredBytes:
    """Bytes that an array of this shape takes, without quantising anything.

    ``payload = ceil(n * bits / 8)``; with G scales ``scales = G * scale width``;
    ``zeros = ceil(G * bits / 8)`` for "code", ``G * scale width`` for "value".
    """
    sets = math.prod(grouped_shape(shape, scheme=scheme))
    width = number_format(scheme.scale_dtype).bits // 8
    bits = scheme.number.bits
    zeros = {"none": 0, "code": packed_bytes(sets, bits=bits), "value": sets * width}[scheme.zero]
    return StoredBytes(packed_bytes(math.prod(shape), bits=bits), sets * width, zeros)


def bits_per_value(shape: tuple[int, ...], *, scheme: Scheme) -> float:
    """All stored bits, scales and zero points included, per value."""
    return 8 * stored_bytes(shape, scheme=scheme).total / max(math.prod(shape), 1)
