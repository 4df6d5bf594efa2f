"""Tensor parallelism: one layer over several ranks, two all-reduces per layer.

A column-parallel matrix keeps some outputs, so its input must be whole and nothing is sent. A
row-parallel one keeps some inputs, so its outputs are partial sums that an all-reduce completes.
Attention (heads) and SwiGLU (columns) are pairs of the two: each needs one all-reduce.
Source: Shoeybi et al. 2019, arXiv:1909.08053.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch.nn import functional

from turbo_lab.parallel.comm import Comm
from turbo_lab.parallel.partition import TensorPart, tensor_part
from turbo_lab.parallel.weights import Weights

Tensor = torch.Tensor


class FeedForward(Protocol):
    """What stands between attention and the next layer: [B, T, H] to [B, T, H]."""

    def __call__(self, hidden: Tensor) -> Tensor:
        """The layer's contribution, complete on every rank of the tensor-parallel group."""


def rms_norm(hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square normalisation over the last dimension, in float32 at least."""
    wide = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return scaled.to(hidden.dtype) * weight


def rotate(heads: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary positions on [B, heads, T, D] in the halves layout of Hugging Face's Llama."""
    dim = heads.shape[-1]
    steps = torch.arange(0, dim, 2, device=heads.device, dtype=torch.float32) / dim
    angles = torch.outer(positions.float(), 1.0 / theta**steps)
    cos, sin = (torch.cat([f(angles)] * 2, dim=-1).to(heads.dtype) for f in (torch.cos, torch.sin))
    left, right = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat([-right, left], dim=-1) * sin


class KVCache:
    """Keys and values of one layer on one rank: [B, local KV heads, tokens, D], growing."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    @property
    def tokens(self) -> int:
        """Tokens stored for each request."""
        return 0 if self.keys is None else self.keys.shape[2]

    def add(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append new tokens; returns all keys and values."""
        if self.keys is not None and self.values is not None:
            keys = torch.cat([self.keys, keys], dim=2)
            values = torch.cat([self.values, values], dim=2)
        self.keys, self.values = keys, values
        return keys, values


class ColumnLinear:
    """Keeps rows ``outputs`` of a weight [outputs, inputs]: whole input, part of the output."""

    def __init__(self, weights: Weights, name: str, *, outputs: range) -> None:
        self.weight = weights.read(name, rows=outputs)

    def __call__(self, hidden: Tensor) -> Tensor:
        """[..., inputs] to [..., local outputs]; nothing is sent."""
        return functional.linear(hidden, self.weight)


class RowLinear:
    """Keeps columns ``inputs`` of a weight: part of the input, a partial sum of the output."""

    def __init__(
        self, weights: Weights, name: str, *, inputs: range, comm: Comm, label: str
    ) -> None:
        self.weight = weights.read(name, columns=inputs)
        self._comm, self._label = comm, label

    def __call__(self, part: Tensor) -> Tensor:
        """[..., local inputs] to the whole [..., outputs] on every rank: one all-reduce."""
        return self._comm.all_reduce(functional.linear(part, self.weight), label=self._label)


class VocabEmbedding:
    """Keeps some rows of the embedding; other tokens give zeros, an all-reduce fills them in."""

    def __init__(self, weights: Weights, *, part: TensorPart, comm: Comm) -> None:
        self.weight = weights.read("model.embed_tokens.weight", rows=part.vocab)
        self._first, self._comm = part.vocab.start, comm

    def __call__(self, tokens: Tensor) -> Tensor:
        """Token ids [B, T] to [B, T, H]."""
        local = tokens - self._first
        mine = (local >= 0) & (local < self.weight.shape[0])
        rows = functional.embedding(local.clamp(0, self.weight.shape[0] - 1), self.weight)
        return self._comm.all_reduce(rows * mine.unsqueeze(-1), label="embedding")


class VocabHead:
    """Keeps some rows of the output head: logits of its own words."""

    def __init__(self, weights: Weights, *, part: TensorPart, comm: Comm) -> None:
        tied = weights.spec.tied_embeddings
        name = "model.embed_tokens.weight" if tied else "lm_head.weight"
        self.weight = weights.read(name, rows=part.vocab)
        self._first, self._comm = part.vocab.start, comm
        self._vocab, self._missing = weights.spec.vocab, part.padded_vocab - len(part.vocab)

    def __call__(self, hidden: Tensor) -> Tensor:
        """[B, T, H] to all logits [B, T, vocab] on every rank: gathers B*T*vocab numbers."""
        local = functional.pad(functional.linear(hidden, self.weight), (0, self._missing))
        pieces = self._comm.all_gather(local.unsqueeze(0), label="logits")
        return torch.cat(list(pieces), dim=-1)[..., : self._vocab]

    def argmax(self, hidden: Tensor) -> Tensor:
        """The best token of each row [B, H]: gathers one candidate per rank, not the logits."""
        best, index = functional.linear(hidden, self.weight).max(dim=-1)
        mine = torch.stack([best.double(), (index + self._first).double()])
        values, tokens = self._comm.all_gather(mine.unsqueeze(0), label="argmax").unbind(1)
        winner = values.argmax(dim=0, keepdim=True)  # the first of equals, as without sharding
        return tokens.gather(0, winner)[0].long()


class Attention:
    """Grouped-query attention over this rank's heads, with one all-reduce at its end."""

    def __init__(self, weights: Weights, layer: int, *, part: TensorPart, comm: Comm) -> None:
        self.dim, self._weights = weights.spec.head_dim_k, weights
        query, kv = _columns(part.query_heads, self.dim), _columns(part.kv_heads, self.dim)

        def column(name: str, outputs: range) -> ColumnLinear:
            return ColumnLinear(weights, weights.layer(layer, f"self_attn.{name}"), outputs=outputs)

        self.query, self.key = column("q_proj", query), column("k_proj", kv)
        self.value = column("v_proj", kv)
        self.out = RowLinear(
            weights, weights.layer(layer, "self_attn.o_proj"), inputs=query, comm=comm,
            label="attention",
        )  # fmt: skip
        norms = [weights.layer(layer, f"self_attn.{name}") for name in ("q_norm", "k_norm")]
        self.norms = [weights.read(n) if n in weights.tensors else None for n in norms]

    def __call__(self, hidden: Tensor, cache: KVCache) -> Tensor:
        """[B, T, H] behind ``cache.tokens`` tokens to [B, T, H]; extends the cache."""
        start, steps = cache.tokens, hidden.shape[1]
        positions = torch.arange(start, start + steps, device=hidden.device)
        query, key = (
            rotate(
                self._normed(self._heads(part(hidden)), norm), positions, self._weights.rope_theta
            )
            for part, norm in zip((self.query, self.key), self.norms, strict=True)
        )
        keys, values = cache.add(key, self._heads(self.value(hidden)))
        seen = torch.arange(start + steps, device=hidden.device)[None] <= positions[:, None]
        mixed = functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=seen, enable_gqa=True
        )
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _heads(self, flat: Tensor) -> Tensor:
        return flat.unflatten(-1, (-1, self.dim)).transpose(1, 2)

    def _normed(self, heads: Tensor, norm: Tensor | None) -> Tensor:
        return heads if norm is None else rms_norm(heads, norm, self._weights.eps)


class SwiGLU:
    """down(silu(gate(x)) * up(x)) over this rank's columns, with one all-reduce at its end."""

    def __init__(self, weights: Weights, layer: int, *, part: TensorPart, comm: Comm) -> None:
        def column(name: str) -> ColumnLinear:
            return ColumnLinear(weights, weights.layer(layer, f"mlp.{name}"), outputs=part.width)

        self.gate, self.up = column("gate_proj"), column("up_proj")
        self.down = RowLinear(
            weights,
            weights.layer(layer, "mlp.down_proj"),
            inputs=part.width,
            comm=comm,
            label="mlp",
        )

    def __call__(self, hidden: Tensor) -> Tensor:
        """[B, T, H] to [B, T, H]."""
        return self.down(functional.silu(self.gate(hidden)) * self.up(hidden))


class Block:
    """One decoder layer. ``feed_forward`` replaces the SwiGLU (experts)."""

    def __init__(
        self, weights: Weights, layer: int, *, comm: Comm, feed_forward: FeedForward | None = None
    ) -> None:
        part = tensor_part(weights.spec, rank=comm.rank, ranks=comm.size)
        self.attention = Attention(weights, layer, part=part, comm=comm)
        self.feed_forward = feed_forward or SwiGLU(weights, layer, part=part, comm=comm)
        self.norms = [
            weights.read(weights.layer(layer, name))
            for name in ("input_layernorm", "post_attention_layernorm")
        ]
        self._eps = weights.eps

    def __call__(self, hidden: Tensor, cache: KVCache) -> Tensor:
        """[B, T, H] to [B, T, H]; extends the cache."""
        hidden = hidden + self.attention(rms_norm(hidden, self.norms[0], self._eps), cache)
        return hidden + self.feed_forward(rms_norm(hidden, self.norms[1], self._eps))


def _columns(heads: range, dim: int) -> range:
    return range(heads.start * dim, heads.stop * dim)
