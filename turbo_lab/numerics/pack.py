"""Codes of a few bits, several to a byte. What is stored is what is counted."""

from __future__ import annotations

import numpy as np

from turbo_lab.core.errors import UsageError

_PACKED_BITS = (1, 2, 4)
_WHOLE_BITS = {8: "<u1", 16: "<u2", 32: "<u4"}


def packed_bytes(count: int, *, bits: int) -> int:
    """Bytes of ``count`` codes: ``ceil(count * bits / 8)``; the last byte may be part empty."""
    _check_bits(bits)
    return -(-count * bits // 8)


def pack(codes: np.ndarray, *, bits: int) -> np.ndarray:
    """Codes in C order as bytes (uint8, one dimension), the first code in the lowest bits.

    Eight 4-bit codes read as one little-endian int32 give the word that GPTQ and
    compressed-tensors store. Raises UsageError for a code that does not fit.
    """
    _check_bits(bits)
    flat = np.ascontiguousarray(codes).reshape(-1)
    if flat.size and (int(flat.max()) >> bits or int(flat.min()) < 0):
        raise UsageError(
            f"codes from {flat.min()} to {flat.max()} do not fit {bits} bits; "
            f"allowed: 0 to {(1 << bits) - 1}."
        )
    if bits in _WHOLE_BITS:
        return flat.astype(_WHOLE_BITS[bits]).view(np.uint8)
    per_byte = 8 // bits
    padded = np.zeros(packed_bytes(flat.size, bits=bits) * per_byte, dtype=np.uint8)
    padded[: flat.size] = flat
    payload = padded[0::per_byte].copy()
    for place in range(1, per_byte):
        payload |= padded[place::per_byte] << np.uint8(place * bits)
    return payload


def unpack(payload: np.ndarray, *, bits: int, count: int) -> np.ndarray:
    """The first ``count`` codes, one dimension; the exact inverse of :func:`pack`.

    Raises UsageError when the payload has another length than ``count`` codes need.
    """
    if payload.size != packed_bytes(count, bits=bits):
        raise UsageError(
            f"payload has {payload.size} bytes; {count} codes of {bits} bits need "
            f"{packed_bytes(count, bits=bits)}."
        )
    if bits in _WHOLE_BITS:
        return payload.view(_WHOLE_BITS[bits])
    per_byte = 8 // bits
    codes = np.empty(payload.size * per_byte, dtype=np.uint8)
    for place in range(per_byte):
        codes[place::per_byte] = (payload >> np.uint8(place * bits)) & np.uint8((1 << bits) - 1)
    return codes[:count]


def _check_bits(bits: int) -> None:
    allowed = (*_PACKED_BITS, *_WHOLE_BITS)
    if bits not in allowed:
        raise UsageError(f"bits is {bits}; allowed: {', '.join(map(str, allowed))}.")
