"""What a block looks like on the link: as it is stored, as fp16, or as int8 with scales.

vLLM's CPU engine stores a block of one layer head by head: first the keys, channel after channel,
each with all tokens of the block; then the values, token after token. Groups of 64 neighbours are
therefore one channel's keys over half a block, and (with a head dimension of 64) one token's
values: the groupings that suit keys and values best, without another copy.
"""

from __future__ import annotations

import math

import numpy as np

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.numerics.formats import number_format
from turbo_lab.numerics.quantized import Quantized, dequantize, quantize
from turbo_lab.numerics.schemes import Scheme, stored_bytes

RAW = "raw"
GROUP = 64
SCHEMES = {
    "fp16": Scheme("fp16", granularity="none"),
    "int8": Scheme("int8", granularity="group", group_size=GROUP, scale_dtype="fp16"),
}
WIRES = (RAW, *SCHEMES)
_NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_NUMPY = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}


def require_wire(wire: str) -> str:
    """The name itself. Raises UsageError for an unknown one."""
    if wire not in WIRES:
        raise UsageError(f"wire is {wire!r}.{did_you_mean(wire, list(WIRES))}")
    return wire


def wire_bytes(shape: tuple[int, ...], *, dtype: str, wire: str = RAW) -> int:
    """Payload bytes of one block of one layer.

    ``raw``: values * bytes of the dtype. ``fp16``: 2 per value. ``int8``: 1 per value and 2 per
    group of 64 (the scale in fp16), 8.25 bits per value.
    """
    if require_wire(wire) == RAW:
        return math.prod(shape) * np.dtype(_storage(dtype)).itemsize
    return stored_bytes((math.prod(shape),), scheme=SCHEMES[wire]).total


def encode(stored: np.ndarray, *, dtype: str, wire: str) -> np.ndarray:
    """Bytes for the link from a block's bytes (uint8, one dimension)."""
    if require_wire(wire) == RAW:
        return stored
    found = quantize(_values(stored, dtype), SCHEMES[wire])
    return np.concatenate([found.payload, found.scales.view(np.uint8).reshape(-1)])


def decode(payload: np.ndarray, *, shape: tuple[int, ...], dtype: str, wire: str) -> np.ndarray:
    """A block's bytes from those of the link. Raises UsageError for a wrong length."""
    expected = wire_bytes(shape, dtype=dtype, wire=wire)
    if payload.nbytes != expected:
        raise UsageError(f"a block has {payload.nbytes} bytes as {wire}; wanted are {expected}")
    if wire == RAW:
        return payload
    scheme, count = SCHEMES[wire], math.prod(shape)
    code_bytes = stored_bytes((count,), scheme=scheme).payload
    scales = payload[code_bytes:].view(np.float16)
    scales = scales.astype(np.float32) if scheme.granularity == "none" else scales
    values = dequantize(Quantized(payload[:code_bytes], scales, None, (count,), scheme))
    return _stored(values, dtype)


def _storage(dtype: str) -> type:
    if dtype not in _NUMPY:
        raise UsageError(f"KV dtype is {dtype!r}.{did_you_mean(dtype, list(_NUMPY))}")
    return _NUMPY[dtype]


def _values(stored: np.ndarray, dtype: str) -> np.ndarray:
    held = stored.view(_storage(dtype))
    return number_format("bf16").decode(held) if dtype == "bfloat16" else held.astype(np.float32)


def _stored(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return number_format("bf16").encode(values).astype(np.uint16).view(np.uint8)
    return values.astype(_storage(dtype)).view(np.uint8)
