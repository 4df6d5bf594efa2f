"""The caches that notebook 07 compares, by name, and the bytes each must take. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from turbo_lab.core.errors import UsageError
from turbo_lab.models.spec import ModelSpec
from turbo_lab.precision.eviction_rule import Eviction, evicted_layer_bytes
from turbo_lab.precision.kv_cache_scheme import KvScheme, kv_scheme, layer_cache_bytes

CacheKind = KvScheme | Eviction


def cache_kinds() -> dict[str, CacheKind]:
    """The caches of the table, by the name that the table shows; the first is the off-control."""
    return {
        "fp32, our cache": kv_scheme("fp32"),
        "bf16": kv_scheme("bf16"),
        "fp8 e4m3": kv_scheme("fp8_e4m3", keys="none"),
        "fp8 e5m2": kv_scheme("fp8_e5m2", keys="none"),
        "int8, K per token": kv_scheme("int8", keys="token"),
        "int8, K per channel": kv_scheme("int8"),
        "int4, K per token": kv_scheme("int4", keys="token"),
        "int4, K per token, sinks": kv_scheme("int4", keys="token", sink_tokens=4),
        "int4, K per token, rotated": kv_scheme("int4", keys="token", rotation="hadamard"),
        "int4, K per channel": kv_scheme("int4"),
        "int4, K per channel, recent": kv_scheme("int4", recent_tokens=32),
        "int4, K per channel, sinks and recent": kv_scheme("int4", sink_tokens=4, recent_tokens=32),
        "int4, K per channel, rotated": kv_scheme("int4", rotation="hadamard"),
        "int2, K per channel, sinks and recent": kv_scheme("int2", sink_tokens=4, recent_tokens=32),
        "4 sinks + window of 252": Eviction(window_tokens=252, sink_tokens=4),
        "window of 256": Eviction(window_tokens=256),
        "128 heavy hitters + window of 128": Eviction(window_tokens=128, heavy_tokens=128),
    }


def cache_bytes(
    kind: CacheKind, *, spec: ModelSpec, texts_tokens: Sequence[int], element_bytes: int = 4
) -> int:
    """Bytes that caches of this kind hold over all attention layers after texts of these lengths.

    Args:
        kind: how tokens are kept.
        spec: the model; each attention layer has its own KV heads and head size.
        texts_tokens: length of each text; each has a cache of its own.
        element_bytes: of one value in the model's own dtype.

    Raises:
        UsageError: a layer that is no plain full attention with keys as wide as values.
    """
    for index, layer in enumerate(spec.attention_layers):
        if layer.kind != "full" or layer.shares_kv or layer.head_dim_k != layer.head_dim_v:
            raise UsageError(
                f"{spec.name}, attention layer {index}: these caches are for full attention with "
                "keys as wide as values"
            )
    law = evicted_layer_bytes if isinstance(kind, Eviction) else layer_cache_bytes
    return sum(
        law(kind, tokens=tokens, kv_heads=layer.kv_heads, head_dim=layer.head_dim_k,
            element_bytes=element_bytes)  # type: ignore[arg-type]
        for tokens in texts_tokens
        for layer in spec.attention_layers
    )  # fmt: skip
