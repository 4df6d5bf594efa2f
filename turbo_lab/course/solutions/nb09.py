"""Solutions of notebook 09."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any


def cuts() -> dict[str, str]:
    """What feeds a function of single values is cut by column, what is summed up after it by row.

    Then the input of the first is whole on every rank, the second's input is already in parts, and
    only the sum at the end has to be exchanged.
    """
    columns = dict.fromkeys(("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), "column")
    return {**columns, "o_proj": "row", "down_proj": "row"}


def exchanged_bytes(layers: int, hidden: int, tokens: int, element_bytes: int) -> int:
    """Two all-reduces per layer, each over one hidden state for every token of the step."""
    return 2 * layers * tokens * hidden * element_bytes


def sent_by_rank(size_bytes: float, ranks: int) -> float:
    """A ring sums up in n - 1 rounds and spreads the sums in n - 1 more, S / n bytes in each."""
    return 2 * (ranks - 1) / ranks * size_bytes


def kv_heads(query_heads: int, kv_heads: int, ranks: int) -> tuple[int, int] | None:
    """(KV heads on a rank, ranks that hold the same one); None where the heads do not divide."""
    if query_heads % ranks or (kv_heads % ranks and ranks % kv_heads):
        return None
    return max(1, kv_heads // ranks), max(1, ranks // kv_heads)


def step_s(share_s: float, exchange_s: float, ranks: int, cores: int) -> float:
    """Ranks that share cores take turns, and everybody waits for the last one."""
    turns = -(-ranks // cores)
    return turns * share_s + exchange_s


def break_even_latency_s(whole_s: float, ranks: int, layers: int) -> float:
    """Saved: ``t (1 - 1/n)``. Spent: ``2 L`` all-reduces of ``2 (n - 1)`` messages. So t / (4 L n).

    The layers are always there, so more ranks ask for a faster network, not a slower one.
    """
    return whole_s / (4 * layers * ranks)


SOLUTIONS: MappingProxyType[str, Any] = MappingProxyType({
    "09.1": cuts, "09.2": exchanged_bytes, "09.3": sent_by_rank, "09.4": kv_heads, "09.5": step_s,
    "09.6": break_even_latency_s,
})  # fmt: skip
