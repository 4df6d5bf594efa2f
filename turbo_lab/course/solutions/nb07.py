"""Solutions of notebook 07."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType


def bits_per_value(bits: int, group: int, scale_bits: int, minimum_bits: int) -> float:
    """What the group shares is divided by its size."""
    return bits + (scale_bits + minimum_bits) / group


def packed_tokens(tokens: int, sinks: int, recent: int, block: int) -> int:
    """Whole blocks of what is neither sink nor recent."""
    return max(0, tokens - sinks - recent) // block * block


def round_trip(values: Sequence[float], bits: int) -> list[float]:
    """``low + round((v - low) / step) * step`` with ``step = range / (2^bits - 1)``."""
    low, high = min(values), max(values)
    step = (high - low) / (2**bits - 1)
    if step == 0:
        return list(values)
    return [low + round((v - low) / step) * step for v in values]


def pool_tokens(pool_bytes: int, block_tokens: int, bytes_per_token: int) -> int:
    """Whole blocks, then their tokens."""
    return pool_bytes // (block_tokens * bytes_per_token) * block_tokens


def shown(rows: Sequence[tuple[str, float, float]]) -> list[str]:
    """An interval that leaves zero out, on either side."""
    return [name for name, low, high in rows if low > 0 or high < 0]


SOLUTIONS = MappingProxyType({
    "07.1": bits_per_value,
    "07.2": packed_tokens,
    "07.3": round_trip,
    "07.4": pool_tokens,
    "07.5": shown,
})  # fmt: skip
