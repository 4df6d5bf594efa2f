"""What one decoder layer is made of: attention or a fixed state, and a feed-forward part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AttentionKind = Literal["full", "sliding", "chunked", "mla"]
StateKind = Literal["mamba1", "mamba2", "gated_delta", "kimi_delta", "lightning", "short_conv"]


@dataclass(frozen=True)
class Latent:
    """MLA's dimensions. The cache keeps ``kv_rank + rope_dim`` values per token and layer."""

    kv_rank: int
    rope_dim: int
    nope_dim: int
    v_dim: int
    q_rank: int | None = None

    @property
    def cached_dim(self) -> int:
        """Values that one token leaves in the cache of one layer."""
        return self.kv_rank + self.rope_dim


@dataclass(frozen=True)
class Indexer:
    """The small key cache with which sparse attention picks its tokens (DeepSeek-V3.2, GLM-5)."""

    heads: int
    head_dim: int
    topk: int

    @property
    def bytes_per_token(self) -> int:
        """One fp8 key and one fp32 scale per 128 values: 132 bytes for head_dim 128."""
        return self.head_dim + -(-self.head_dim // 128) * 4


@dataclass(frozen=True)
class Attention:
    """One attention layer. ``window_tokens``: sliding window or chunk size, None for the rest.

    ``shares_kv``: the layer reads the cache of an earlier one and stores nothing of its own.
    For MLA, ``kv_heads`` is the config's number; the cache has one latent instead.
    """

    kind: AttentionKind
    query_heads: int
    kv_heads: int
    head_dim_k: int
    head_dim_v: int
    window_tokens: int | None = None
    latent: Latent | None = None
    indexer: Indexer | None = None
    shares_kv: bool = False

    @property
    def grows(self) -> bool:
        """True when the layer's cache keeps growing with the context."""
        return not self.shares_kv and self.kind in ("full", "mla")


@dataclass(frozen=True)
class State:
    """One layer with a state of fixed size per request instead of a growing cache.

    Mamba-2, gated delta and Kimi delta: ``heads`` value heads of ``head_dim``, ``groups`` key
    heads (groups) of ``state_dim``, a convolution over ``conv_kernel`` tokens.
    Mamba-1: ``heads`` is the inner width. ``short_conv``: only the convolution.
    """

    kind: StateKind
    heads: int
    head_dim: int
    groups: int
    state_dim: int
    conv_kernel: int
    state_dtype: Literal["bf16", "fp16", "fp32"] | None = None


@dataclass(frozen=True)
class FeedForward:
    """The feed-forward part. ``experts`` is 0 for a dense one.

    ``width``: intermediate size of the dense layer or of one expert; ``shared_width``: of all
    shared experts together; ``matrices``: 3 with a gate, 2 without.
    """

    width: int
    experts: int = 0
    active_experts: int = 0
    shared_width: int = 0
    matrices: int = 3
    # A dense branch beside the experts (Gemma 4), 0 where there is none.
    parallel_width: int = 0


@dataclass(frozen=True)
class Layer:
    """One decoder layer. A part that the layer does not have is None.

    ``state`` and ``attention`` together: both run in parallel (Falcon-H1).
    """

    attention: Attention | None
    state: State | None
    feed_forward: FeedForward | None
