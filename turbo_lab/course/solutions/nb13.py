"""Solutions of notebook 13."""

from __future__ import annotations

import math
from types import MappingProxyType


def merge_base2(out_a: float, gamma_a: float, out_b: float, gamma_b: float) -> tuple[float, float]:
    """``w = 1 / (1 + 2^-delta)`` for the heavier part; only the difference is an exponent."""
    delta = abs(gamma_a - gamma_b)
    gamma = max(gamma_a, gamma_b) + math.log2(1 + 2**-delta)
    weight = 1 / (1 + 2**-delta)
    big, small = (out_a, out_b) if gamma_a >= gamma_b else (out_b, out_a)
    return weight * big + (1 - weight) * small, gamma


def table_entry(delta: int, fraction_bits: int, weight_bits: int) -> tuple[int, int]:
    """Addend and weight code by the difference of two gamma codes.

    ``round`` of Python rounds half to even, as the machine does. The code of one half is the
    largest code, so the whole is twice that.
    """
    power = 2.0 ** (-delta / 2**fraction_bits)
    addend = round(math.log2(1 + power) * 2**fraction_bits)
    return addend, round(2 * (2**weight_bits - 1) * power / (1 + power))


def accept(bitmap: int, sender: int, hosts: int) -> tuple[int, bool, bool]:
    """(new bitmap, merge this packet?, send the result?): a bit that is set already says no."""
    bit = 1 << sender
    new = not bitmap & bit
    bitmap |= bit
    return bitmap, new, new and bitmap == (1 << hosts) - 1


def link_bytes(strategy: str, hosts: int, vectors: int, dim: int) -> int:
    """Datagram bytes that a step sends over the busiest host link, in one direction."""
    load = {"in-network": 1, "ring": hosts - 1, "gather": hosts - 1}[strategy]
    return load * vectors * (16 + dim)


def break_even_tokens(
    merge_s: float, kv_bytes_per_token: float, bandwidth_bytes_s: float, hosts: int
) -> float:
    """A host reads 1/n of the cache, so (1 - 1/n) of the reading is saved."""
    return merge_s * bandwidth_bytes_s / (kv_bytes_per_token * (1 - 1 / hosts))


SOLUTIONS = MappingProxyType({
    "13.1": merge_base2,
    "13.2": table_entry,
    "13.3": accept,
    "13.4": link_bytes,
    "13.5": break_even_tokens,
})  # fmt: skip
