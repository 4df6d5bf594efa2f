"""Solutions of notebook 01."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any


def kv_cache_gib(
    batch: int, context_tokens: int, layers: int, kv_heads: int, head_dim: int, value_bytes: float
) -> float:
    """Per token: a key and a value (2) in every layer, for every KV head."""
    bytes_per_token = 2 * layers * kv_heads * head_dim * value_bytes
    return batch * context_tokens * bytes_per_token / 2**30


def kv_bytes_per_token(config: dict[str, Any]) -> int:
    """Read config.json as the engine does, in bf16 (2 bytes).

    ``head_dim`` counts where it is given; hidden / heads is only its default. Without
    ``num_key_value_heads`` every query head has its own key and value.
    """
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    return 2 * config["num_hidden_layers"] * kv_heads * head_dim * 2


def request_kv_bytes(layers: list[dict[str, Any]], context_tokens: int) -> int:
    """Each kind of layer has its own rule (bf16): full, window, latent (MLA), state."""
    total = 0
    for layer in layers:
        if layer["kind"] == "full":
            total += context_tokens * 2 * layer["kv_heads"] * layer["head_dim"] * 2
        elif layer["kind"] == "window":
            kept = min(context_tokens, layer["window_tokens"])
            total += kept * 2 * layer["kv_heads"] * layer["head_dim"] * 2
        elif layer["kind"] == "latent":  # one shared vector instead of keys and values per head
            total += context_tokens * layer["width"] * 2
    return total  # a state layer keeps nothing per token


def pool_tokens(pool_bytes: int, bytes_per_token: int, block_tokens: int) -> int:
    """The engine hands out whole blocks; what is left of the pool stays empty."""
    blocks = pool_bytes // (bytes_per_token * block_tokens)
    return blocks * block_tokens


def concurrency(pool: int, block_tokens: int, request_tokens: int) -> float:
    """A request holds whole blocks too, its last one partly filled."""
    return (pool // block_tokens) / math.ceil(request_tokens / block_tokens)


def kv_room_gib(
    total_gib: float, utilisation: float, weights_gib: float, peak_gib: float, other_gib: float
) -> float:
    """What the share of the card leaves after weights, the largest forward pass and the rest."""
    return max(0.0, total_gib * utilisation - weights_gib - peak_gib - other_gib)


SOLUTIONS = MappingProxyType({
    "01.1": kv_cache_gib,
    "01.2": kv_bytes_per_token,
    "01.3": request_kv_bytes,
    "01.4": pool_tokens,
    "01.5": concurrency,
    "01.6": kv_room_gib,
})  # fmt: skip
