"""The cache layers of one rank and the page (block) that each of them takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from turbo_lab.core import host
from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.deployment import Deployment
from turbo_lab.estimate.law import Law
from turbo_lab.models.dtypes import Dtype, head_bytes
from turbo_lab.models.layers import Attention, Layer, State
from turbo_lab.models.memory import (
    compute_dtype,
    kv_heads_per_rank,
    layer_bytes_per_token,
    resolve_kv_dtype,
    serving_dtype,
)
from turbo_lab.models.spec import ModelSpec
from turbo_lab.models.stages import pipeline_stages
from turbo_lab.models.states import state_bytes


@dataclass(frozen=True)
class CacheLayer:
    """One layer's share of the cache on one rank.

    ``token_bytes`` is 0 for states, whose size is ``fixed_bytes``. ``shape`` tells layers apart
    that have the same bytes. ``padded_bytes``: the page the layer is padded to.
    """

    kind: Literal["full", "sliding", "chunked", "mla", "indexer", "state"]
    block_tokens: int
    token_bytes: int
    shape: tuple[int, ...] = ()
    window_tokens: int | None = None
    fixed_bytes: int = 0
    state_blocks: int = 0
    padded_bytes: int | None = None

    @property
    def page_bytes(self) -> int:
        """Bytes of one block of this layer."""
        natural = self.fixed_bytes or self.block_tokens * self.token_bytes
        return max(natural, self.padded_bytes or 0)

    def blocks_per_request(self, *, length: int, in_flight: int) -> int:
        """Blocks that one request of ``length`` tokens holds at most.

        Full and MLA ``cdiv(S, b)``; sliding ``cdiv(min(W - 1 + in_flight, S), b) + 1``; chunked
        ``cdiv(min(C + in_flight, S), b)``; states a fixed number. Source: vLLM 0.32's
        ``max_memory_usage_bytes`` of each layer spec.
        """
        if self.kind == "state":
            return self.state_blocks
        tokens = length
        if self.kind == "sliding":
            tokens = min((self.window_tokens or 0) - 1 + in_flight, length)
        elif self.kind == "chunked":
            tokens = min((self.window_tokens or 0) + in_flight, length)
        return -(-tokens // self.block_tokens) + (self.kind == "sliding")


def cache_layers(
    spec: ModelSpec, deployment: Deployment, *, law: Law, max_len: int
) -> list[tuple[int, CacheLayer]]:
    """(pipeline stage, layer) of all layers that keep something, in the order of the model.

    Raises UsageError when heads or states do not divide by the ranks.
    """
    if spec.query_heads and spec.query_heads % deployment.tensor_parallel:
        raise UsageError(
            f"tensor_parallel is {deployment.tensor_parallel}, which does not divide the "
            f"{spec.query_heads} attention heads."
        )
    dtype = resolve_kv_dtype(spec, dtype=deployment.kv_dtype, computed=deployment.dtype)
    stages = pipeline_stages(len(spec.layers), stages=deployment.pipeline_parallel)
    layers = [*zip(stages, spec.layers, strict=True), *_prediction(spec, deployment)]
    state_bytes_max = max(
        (_state_bytes(spec, la.state, deployment) for _, la in layers if la.state), default=0
    )
    block, padded = _alignment(spec, deployment, dtype=dtype, state=state_bytes_max)
    if not spec.attention_layers:
        block = max_len
    found: list[tuple[int, CacheLayer]] = []
    for stage, layer in layers:
        if layer.attention is not None and not layer.attention.shares_kv:
            found += [
                (stage, c) for c in _attention(layer.attention, deployment, law, dtype, block)
            ]
        if layer.state is not None:
            size = _state_bytes(spec, layer.state, deployment)
            blocks = _state_blocks(layer.state, deployment, law)
            state = CacheLayer(
                "state", block, 0, fixed_bytes=size, state_blocks=blocks, padded_bytes=padded
            )
            found.append((stage, state))
    return found


def _prediction(spec: ModelSpec, deployment: Deployment) -> list[tuple[int, Layer]]:
    """Attention layers of the checkpoint's own draft (MTP), on the last stage."""
    count = deployment.prediction_layers
    if count is None:
        count = prediction_layers(spec) if deployment.speculative_tokens else 0
    growing = [la.attention for la in spec.layers if la.attention and la.attention.grows]
    if not count or not growing:
        return []
    return [(deployment.pipeline_parallel - 1, Layer(growing[-1], None, None))] * count


def prediction_layers(spec: ModelSpec) -> int:
    """Extra prediction (MTP) layers that the checkpoint carries; 0 without."""
    for name in ("mtp_num_hidden_layers", "num_nextn_predict_layers"):
        value = spec.config.get(name)
        if isinstance(value, int) and value > 0:
            return value
    return 0


def _attention(
    layer: Attention, deployment: Deployment, law: Law, dtype: Dtype, block: int
) -> list[CacheLayer]:
    tp = deployment.tensor_parallel
    size = layer_bytes_per_token(layer, dtype=dtype, tensor_parallel=tp)
    if layer.latent is not None:
        found = [CacheLayer("mla", block, size, shape=(layer.latent.cached_dim,))]
        if layer.indexer is not None:
            found.insert(0, CacheLayer("indexer", block, layer.indexer.bytes_per_token))
        return found
    kind = layer.kind if law.windows and deployment.hybrid_manager else "full"
    heads = kv_heads_per_rank(layer.kv_heads, tensor_parallel=tp)
    shape = (heads, layer.head_dim_k, layer.head_dim_v)
    window = layer.window_tokens if kind in ("sliding", "chunked") else None
    if kind == "sliding":  # such layers take whole kernel blocks, whatever was asked for
        same = layer.head_dim_k == layer.head_dim_v
        kernel = deployment.kernel_tokens if same else 16  # K and V apart have their own kernel
        block = max(kernel, block // kernel * kernel)
    return [CacheLayer(kind, block, size, shape=shape, window_tokens=window)]


def _state_bytes(spec: ModelSpec, state: State | None, deployment: Deployment) -> int:
    assert state is not None
    chosen = compute_dtype(spec, dtype=deployment.dtype)
    model_dtype = chosen if chosen in ("bf16", "fp16", "fp32") else serving_dtype(spec)
    forced = deployment.state_dtype or _cpu_state_dtype(state, deployment)
    default = "fp32" if state.kind == "kimi_delta" else model_dtype
    return state_bytes(
        state if forced is None else replace(state, state_dtype=forced),
        model_dtype=model_dtype,  # type: ignore[arg-type]
        undeclared_dtype=default,  # type: ignore[arg-type]
        tensor_parallel=deployment.tensor_parallel,
        speculative_tokens=deployment.speculative_tokens,
    )


def _cpu_state_dtype(state: State, deployment: Deployment) -> Literal["fp32"] | None:
    """CPUs with AVX-512 BF16 keep recurrent states in fp32, but a declared one of a delta rule.

    Source: vLLM's ``CpuPlatform.check_and_update_config``.
    """
    if deployment.platform != "cpu" or "avx512_bf16" not in host.cpu_flags():
        return None
    declared = state.kind == "gated_delta" and state.state_dtype is not None
    return None if declared else "fp32"


def _state_blocks(state: State, deployment: Deployment, law: Law) -> int:
    """1 block, and 1 for each speculative token; prefix caching keeps one more (Mamba-2: two)."""
    blocks = 1 + deployment.speculative_tokens
    if deployment.prefix_caching:
        blocks += 1 + (law.state_checkpoint and state.kind == "mamba2")
    return blocks


def _alignment(
    spec: ModelSpec, deployment: Deployment, *, dtype: Dtype, state: int
) -> tuple[int, int | None]:
    """(tokens per block, page that states are padded to).

    With states beside attention the block grows, in steps of the kernel's block, until the
    attention page holds a state; the state is then padded to that page. Source: vLLM's
    ``Platform._align_hybrid_block_size``.
    """
    block = deployment.plain_block_tokens(spec)
    attention = next((la for la in spec.attention_layers if la.grows), None)
    if not state or attention is None:
        return block, None
    per_token = _reference_bytes(attention, dtype, deployment.tensor_parallel)
    step = max(deployment.kernel_tokens, block)
    if attention.latent is not None:
        step = max(step, 128)
    block = max(block, step * -(-state // (step * per_token)))
    return block, block * per_token


def _reference_bytes(layer: Attention, dtype: Dtype, tp: int) -> int:
    """Bytes per token as the alignment sees them: K and V both of the key's size."""
    if layer.latent is not None:
        return layer_bytes_per_token(layer, dtype=dtype)
    heads = kv_heads_per_rank(layer.kv_heads, tensor_parallel=tp)
    return heads * head_bytes(layer.head_dim_k, layer.head_dim_k, dtype=dtype)
