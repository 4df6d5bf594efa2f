"""``ModelSpec``: what a model's config.json says about its memory, read strictly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turbo_lab.models.layers import Attention, Layer, State


@dataclass(frozen=True)
class ModelSpec:
    """A model as far as memory and work depend on it. Built by :func:`from_hf_config`.

    ``kv_heads``, ``head_dim_k``, ``head_dim_v``: of the first attention layer, for display; the
    layers are what counts. ``dtype_assumed``: config.json names no dtype and bf16 was taken.
    ``config``: the (text part of the) config the spec was read from.
    """

    name: str
    model_type: str
    architecture: str
    layers: tuple[Layer, ...]
    hidden: int
    query_heads: int
    vocab: int
    context_tokens: int
    tied_embeddings: bool
    dtype: str
    dtype_assumed: bool
    quantization: str | None
    config: Mapping[str, Any]
    root_config: Mapping[str, Any]

    @property
    def attention_layers(self) -> tuple[Attention, ...]:
        """Attention layers in order, those that share another's cache included."""
        return tuple(layer.attention for layer in self.layers if layer.attention)

    @property
    def state_layers(self) -> tuple[State, ...]:
        """Layers with a fixed state (Mamba, linear attention, short convolution), in order."""
        return tuple(layer.state for layer in self.layers if layer.state)

    @property
    def attention_kinds(self) -> tuple[str, ...]:
        """One word for each layer: full, sliding, chunked, mla, a state kind, or none."""
        return tuple(
            "+".join(p.kind for p in (layer.attention, layer.state) if p) or "none"
            for layer in self.layers
        )

    @property
    def kv_heads(self) -> int:
        """KV heads of the first attention layer (0 without attention)."""
        return self.attention_layers[0].kv_heads if self.attention_layers else 0

    @property
    def head_dim_k(self) -> int:
        """Width of one key head of the first attention layer (0 without attention)."""
        return self.attention_layers[0].head_dim_k if self.attention_layers else 0

    @property
    def head_dim_v(self) -> int:
        """Width of one value head of the first attention layer (0 without attention)."""
        return self.attention_layers[0].head_dim_v if self.attention_layers else 0

    @property
    def experts(self) -> int:
        """Routed experts of the widest MoE layer; 0 for a dense model."""
        return max((la.feed_forward.experts for la in self.layers if la.feed_forward), default=0)


def from_hf_config(config: Mapping[str, Any], *, name: str | None = None) -> ModelSpec:
    """Read a real config.json. Documented defaults: see ``turbo_lab.models.reader``.

    Raises ConfigError naming the field that is missing, null, contradictory or unknown.
    """
    from turbo_lab.models.reader import read_spec

    return read_spec(config, name=name)
