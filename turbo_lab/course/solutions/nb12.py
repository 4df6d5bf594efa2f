"""Solutions of notebook 12."""

from __future__ import annotations

from types import MappingProxyType


def moved_tokens(prompt_tokens: int, block_tokens: int) -> int:
    """Whole blocks, with at least one token left to compute."""
    return (prompt_tokens - 1) // block_tokens * block_tokens


def cache_bytes(tokens: int, layers: int, kv_heads: int, head_dim: int, element_bytes: int) -> int:
    """Keys and values of every layer."""
    return tokens * 2 * layers * kv_heads * head_dim * element_bytes


def break_even(size_bytes: float, recompute_s: float, rest_s: float, fixed_s: float) -> float:
    """Bandwidth at which moving takes as long as computing; infinite where none is enough.

    Both ways compute the rest, so it is no gain; the fixed time is spent before a byte moves.
    """
    left_s = recompute_s - rest_s - fixed_s
    return size_bytes / left_s if left_s > 0 else float("inf")


def least_bandwidth(
    hidden: int, prefix_tokens: int, flops: float, heads_per_kv_head: float, element_bytes: int
) -> float:
    """Bytes of a layer over the time of its 4 p^2 d + 22 p d^2 operations."""
    size_bytes = 2 * prefix_tokens * hidden * element_bytes / heads_per_kv_head
    operations = 4 * prefix_tokens**2 * hidden + 22 * prefix_tokens * hidden**2
    return size_bytes / (operations / flops)


def coded_bytes(values: int, group: int) -> int:
    """One byte per value, and a scale of two bytes per group; the last group may be short."""
    return values + 2 * -(-values // group)


def usable_tokens(arrived: list[bool], block_tokens: int) -> int:
    """The longest beginning without a gap: a block behind a missing one has nothing to stand on."""
    whole = 0
    while whole < len(arrived) and arrived[whole]:
        whole += 1
    return whole * block_tokens


SOLUTIONS = MappingProxyType({
    "12.1": moved_tokens,
    "12.2": cache_bytes,
    "12.3": break_even,
    "12.4": least_bandwidth,
    "12.5": coded_bytes,
    "12.6": usable_tokens,
})  # fmt: skip
