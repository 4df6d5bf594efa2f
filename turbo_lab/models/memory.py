"""Bytes that a conversation holds: keys and values, indexer keys and fixed states."""

from __future__ import annotations

from typing import Literal

from turbo_lab.core.errors import UsageError
from turbo_lab.models.dtypes import Dtype, canonical_dtype, head_bytes, latent_bytes
from turbo_lab.models.layers import Attention
from turbo_lab.models.quantization import declared_kv_dtype
from turbo_lab.models.spec import ModelSpec
from turbo_lab.models.states import state_bytes


def kv_heads_per_rank(kv_heads: int, *, tensor_parallel: int) -> int:
    """KV heads that one tensor-parallel rank stores: ``max(1, kv_heads // tp)``.

    With fewer KV heads than ranks each head is replicated. Source: vLLM's
    ``get_num_kv_heads``. Raises UsageError when neither number divides the other.
    """
    if tensor_parallel < 1:
        raise UsageError(f"tensor_parallel is {tensor_parallel}; allowed: whole numbers from 1.")
    if kv_heads % tensor_parallel and tensor_parallel % kv_heads:
        raise UsageError(
            f"tensor_parallel is {tensor_parallel}, and the model has {kv_heads} KV heads; "
            "one of the two must divide the other."
        )
    return max(1, kv_heads // tensor_parallel)


def layer_bytes_per_token(layer: Attention, *, dtype: Dtype, tensor_parallel: int = 1) -> int:
    """Bytes that one attention layer keeps for one token on one rank; 0 when it shares a cache.

    K and V: ``heads_per_rank * (head_dim_k + head_dim_v) * element``. MLA: one latent of
    ``kv_lora_rank + qk_rope_head_dim`` values that every rank keeps whole.
    """
    if layer.shares_kv:
        return 0
    if layer.latent is not None:
        return latent_bytes(layer.latent.cached_dim, dtype=dtype)
    heads = kv_heads_per_rank(layer.kv_heads, tensor_parallel=tensor_parallel)
    return heads * head_bytes(layer.head_dim_k, layer.head_dim_v, dtype=dtype)


def kv_bytes_per_token(spec: ModelSpec, *, dtype: Dtype = "bf16", tensor_parallel: int = 1) -> int:
    """Bytes one token adds over all layers that store K and V for it, on one rank.

    Sliding-window and chunked layers count (a token inside the window); fixed states and
    indexer keys do not. ``dtype="auto"`` is the checkpoint's own (see ``resolve_kv_dtype``).
    """
    kind = resolve_kv_dtype(spec, dtype=dtype)
    return sum(
        layer_bytes_per_token(layer, dtype=kind, tensor_parallel=tensor_parallel)
        for layer in spec.attention_layers
    )


def kv_bytes_per_token_growing(
    spec: ModelSpec, *, dtype: Dtype = "bf16", tensor_parallel: int = 1
) -> int:
    """Like :func:`kv_bytes_per_token`, only for layers that keep growing (full and MLA)."""
    kind = resolve_kv_dtype(spec, dtype=dtype)
    return sum(
        layer_bytes_per_token(layer, dtype=kind, tensor_parallel=tensor_parallel)
        for layer in spec.attention_layers
        if layer.grows
    )


def kv_cache_bytes(
    spec: ModelSpec, *, batch: int, context_tokens: int, dtype: Dtype = "bf16"
) -> int:
    """Bytes of keys and values that ``batch`` requests of ``context_tokens`` tokens must keep.

    Formula: ``B * sum over layers of bytes_per_token * min(S, window)``; for a full-attention
    model this is ``B * S * L * 2 * H_kv * D * element``. No block rounding (see
    ``turbo_lab.estimate.capacity``), no states, no indexer keys.

    Args:
        spec: the model.
        batch: requests, at least 0.
        context_tokens: tokens of each request, prompt and reply together, at least 0.
        dtype: number format of the cache, ``"auto"`` for the checkpoint's own.

    Raises:
        UsageError: for a negative count or an unknown dtype.
    """
    for name, value in (("batch", batch), ("context_tokens", context_tokens)):
        if value < 0:
            raise UsageError(f"{name} is {value}; allowed: whole numbers from 0.")
    kind = resolve_kv_dtype(spec, dtype=dtype)
    return batch * sum(
        layer_bytes_per_token(layer, dtype=kind) * live_tokens(layer, context_tokens=context_tokens)
        for layer in spec.attention_layers
    )


def live_tokens(layer: Attention, *, context_tokens: int) -> int:
    """Tokens whose keys the layer still needs: all, or at most its window or chunk."""
    if layer.window_tokens is None:
        return context_tokens
    return min(context_tokens, layer.window_tokens)


def indexer_bytes_per_token(spec: ModelSpec) -> int:
    """Bytes of sparse attention's indexer keys for one token over all layers, on every rank.

    One fp8 key and an fp32 scale per 128 values: 132 bytes per layer for head_dim 128
    (DeepSeek-V3.2: 8,052 over 61 layers). Source: vLLM's ``DeepseekV32IndexerCache``.
    """
    return sum(la.indexer.bytes_per_token for la in spec.attention_layers if la.indexer)


def resolve_kv_dtype(spec: ModelSpec, *, dtype: str, computed: str = "auto") -> Dtype:
    """The cache format that ``dtype`` stands for; other names become the short ones.

    ``auto`` is what a quantised checkpoint declares for its cache, else what the engine computes in
    (``computed``, itself ``auto`` for the dtype the model is served in).
    """
    if dtype == "auto":
        return declared_kv_dtype(spec) or compute_dtype(spec, dtype=computed)
    return canonical_dtype(dtype, field="kv dtype")


def compute_dtype(spec: ModelSpec, *, dtype: str = "auto") -> Dtype:
    """The dtype the engine computes in: ``auto`` is the one the model is served in."""
    return canonical_dtype(serving_dtype(spec) if dtype == "auto" else dtype)


def state_bytes_per_request(spec: ModelSpec, *, tensor_parallel: int = 1) -> int:
    """Bytes of fixed state that one request holds over all state layers, whatever its length.

    Convolution part in the model's dtype, recurrent part in the dtype config.json declares
    (delta rules: fp32 when it declares none). Qwen3.5-27B: 153,944,064. Source: the shapes of
    vLLM's ``MambaStateShapeCalculator``; see :func:`turbo_lab.models.states.state_elements`.
    """
    return sum(
        state_bytes(layer, model_dtype=serving_dtype(spec), tensor_parallel=tensor_parallel)
        for layer in spec.state_layers
    )


def serving_dtype(spec: ModelSpec) -> Literal["bf16", "fp16"]:
    """The dtype that vLLM serves the model in on its own: the checkpoint's 16-bit one, else bf16.

    Checkpoints in fp32 or 8 bits are served in bf16. Source: vLLM's ``_resolve_auto_dtype``.
    """
    return "fp16" if spec.dtype == "fp16" else "bf16"
