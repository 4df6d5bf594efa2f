"""The weight matrices of one layer by name, for formats that store them in fewer bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from turbo_lab.models.families import family_of
from turbo_lab.models.layers import Attention, FeedForward, Latent, Layer, State
from turbo_lab.models.spec import ModelSpec


@dataclass(frozen=True)
class Matrix:
    """``copies`` equal matrices of ``inputs`` by ``outputs``; ``name`` as checkpoints call it."""

    name: str
    inputs: int
    outputs: int
    copies: int = 1

    @property
    def elements(self) -> int:
        """Weights in all copies."""
        return self.inputs * self.outputs * self.copies


def layer_matrices(spec: ModelSpec, layer: Layer) -> Iterator[Matrix]:
    """Linear layers of one decoder layer, without routers (which no format quantises)."""
    if layer.attention is not None:
        latent = layer.attention.latent
        if latent is not None:
            yield from _latent(spec.hidden, layer.attention, latent)
        else:
            gated = family_of(spec.model_type).query_gate
            yield from _attention(spec.hidden, layer.attention, gated=gated)
    if layer.state is not None:
        yield from _state(spec.hidden, layer.state)
    if layer.feed_forward is not None:
        latent_size = int(spec.config.get("moe_latent_size") or 0)
        yield from _feed_forward(spec.hidden, layer.feed_forward, latent=latent_size)


def _attention(hidden: int, part: Attention, *, gated: bool) -> Iterator[Matrix]:
    """``gated``: the query projection makes a gate of the same width as well."""
    keys = 0 if part.shares_kv else part.kv_heads
    yield Matrix("self_attn.q_proj", hidden, part.query_heads * part.head_dim_k * (1 + gated))
    if keys:
        yield Matrix("self_attn.k_proj", hidden, keys * part.head_dim_k)
        yield Matrix("self_attn.v_proj", hidden, keys * part.head_dim_v)
    yield Matrix("self_attn.o_proj", part.query_heads * part.head_dim_v, hidden)


def _latent(hidden: int, part: Attention, mla: Latent) -> Iterator[Matrix]:
    queries = part.query_heads * part.head_dim_k
    if mla.q_rank is None:
        yield Matrix("self_attn.q_proj", hidden, queries)
    else:
        yield Matrix("self_attn.q_a_proj", hidden, mla.q_rank)
        yield Matrix("self_attn.q_b_proj", mla.q_rank, queries)
    yield Matrix("self_attn.kv_a_proj_with_mqa", hidden, mla.cached_dim)
    yield Matrix("self_attn.kv_b_proj", mla.kv_rank, part.query_heads * (mla.nope_dim + mla.v_dim))
    yield Matrix("self_attn.o_proj", part.query_heads * mla.v_dim, hidden)
    if part.indexer is not None:
        width = part.indexer.heads * part.indexer.head_dim
        yield Matrix("self_attn.indexer.wq_b", mla.q_rank or hidden, width)
        yield Matrix("self_attn.indexer.wk", hidden, part.indexer.head_dim)


def _state(hidden: int, part: State) -> Iterator[Matrix]:
    inner = part.heads * part.head_dim
    if part.kind == "gated_delta":
        channels = 2 * part.groups * part.state_dim + inner
        yield Matrix("linear_attn.in_proj_qkv", hidden, channels)
        yield Matrix("linear_attn.in_proj_z", hidden, inner)
        yield Matrix("linear_attn.out_proj", inner, hidden)
    elif part.kind == "mamba2":
        channels = inner + 2 * part.groups * part.state_dim
        yield Matrix("mixer.in_proj", hidden, inner + channels + part.heads)
        yield Matrix("mixer.out_proj", inner, hidden)
    elif part.kind == "mamba1":
        yield Matrix("mamba.in_proj", hidden, 2 * inner)
        yield Matrix("mamba.out_proj", inner, hidden)
    elif part.kind == "kimi_delta":
        for name in ("q_proj", "k_proj", "v_proj"):
            yield Matrix(f"self_attn.{name}", hidden, inner)
        yield Matrix("self_attn.o_proj", inner, hidden)


def _feed_forward(hidden: int, part: FeedForward, *, latent: int) -> Iterator[Matrix]:
    """``latent``: width of the space in which the experts work, 0 for the hidden one."""
    if part.experts:
        yield from _mlp("mlp.experts", latent or hidden, part.width, part.matrices, part.experts)
        if latent:
            yield Matrix("mlp.fc1_latent_proj", hidden, latent)
            yield Matrix("mlp.fc2_latent_proj", latent, hidden)
        if part.shared_width:
            yield from _mlp("mlp.shared_experts", hidden, part.shared_width, part.matrices, 1)
        if part.parallel_width:
            yield from _mlp("mlp", hidden, part.parallel_width, part.matrices, 1)
    else:
        yield from _mlp("mlp", hidden, part.width, part.matrices, 1)


def _mlp(name: str, hidden: int, width: int, matrices: int, copies: int) -> Iterator[Matrix]:
    if matrices == 3:
        yield Matrix(f"{name}.gate_proj", hidden, width, copies)
    yield Matrix(f"{name}.up_proj", hidden, width, copies)
    yield Matrix(f"{name}.down_proj", width, hidden, copies)
