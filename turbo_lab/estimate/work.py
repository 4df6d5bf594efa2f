"""Least operations and bytes of one engine step, and the time they bound.

A step runs some sequences together; each brings new tokens and a context. Counted is what cannot
be avoided even with perfect fusion: each weight that is used is read once, each cached token that
a layer looks at is read once per sequence, each new key and value is written once. Activations are
left out, because fused kernels can keep them on the chip, and so are tables of which a token reads
one row. So the time from these counts is a true lower bound; with experts it rests on how many of
them a batch uses, which is an estimate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.operations import Operation
from turbo_lab.hardware.roofline import Roof, RooflinePoint
from turbo_lab.models.layers import Attention, FeedForward
from turbo_lab.models.memory import (
    layer_bytes_per_token,
    resolve_kv_dtype,
    state_bytes_per_request,
)
from turbo_lab.models.parameters import ParameterCount, count_parameters
from turbo_lab.models.spec import ModelSpec
from turbo_lab.models.states import state_elements

# Per element of a recurrent state and token: decay, outer product, add, read-out (2 each at most).
STATE_OPS = 6


class Row(NamedTuple):
    """One sequence of a step: ``new`` tokens computed now, ``past`` tokens already cached."""

    new: int
    past: int


@dataclass(frozen=True)
class StepWork:
    """All work of one step, one Operation per kind of part."""

    parts: tuple[Operation, ...]
    tokens: int
    sequences: int

    @property
    def flops(self) -> float:
        """Operations of the whole step."""
        return sum(part.flops for part in self.parts)

    @property
    def bytes_moved(self) -> float:
        """Bytes that the whole step must move."""
        return sum(part.bytes_moved for part in self.parts)

    @property
    def weight_bytes(self) -> float:
        """Bytes of the weights that are used."""
        return sum(part.weight_bytes for part in self.parts)

    @property
    def cache_bytes(self) -> float:
        """Bytes of keys, values and states read and written."""
        return sum(part.cache_bytes for part in self.parts)

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes_moved

    def part(self, name: str) -> Operation:
        """One part by name; KeyError lists the names."""
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(f"{name!r}; the parts are {[p.name for p in self.parts]}")

    def lower_bound_s(self, roof: Roof, *, chips: int = 1) -> float:
        """Everything overlapped: ``max(operations / peak, bytes / bandwidth)``."""
        return roof.lower_bound_s(flops=self.flops, bytes_moved=self.bytes_moved) / chips

    def part_bound_s(self, roof: Roof, *, chips: int = 1) -> float:
        """Parts one after the other, each at its own ceiling: between the two bounds."""
        return (
            sum(roof.lower_bound_s(flops=p.flops, bytes_moved=p.bytes_moved) for p in self.parts)
            / chips
        )

    def upper_bound_s(self, roof: Roof, *, chips: int = 1) -> float:
        """No overlap at full rates: ``operations / peak + bytes / bandwidth``."""
        return roof.upper_bound_s(flops=self.flops, bytes_moved=self.bytes_moved) / chips

    def point(self, label: str, *, seconds: float) -> RooflinePoint:
        """This step as measured: a point for the roofline plot and the check below the roof."""
        return RooflinePoint(label, self.flops, self.bytes_moved, seconds)


def step_work(
    spec: ModelSpec,
    sequences: Iterable[tuple[int, int]],
    *,
    weight_bytes: float = 2,
    kv_dtype: str = "auto",
    sampled: int | None = None,
) -> StepWork:
    """Count the work of one step over ``sequences`` of (new, past) tokens.

    Args:
        spec: the model.
        sequences: pairs of new tokens (1 in decode, the prompt in prefill) and cached tokens.
        weight_bytes: bytes of one weight (2 for bf16, 4 for fp32, 1 for 8 bits).
        kv_dtype: number format of the cache.
        sampled: positions that go through the output head; default: one per sequence.

    Raises:
        UsageError: no sequence, or a count out of range.
    """
    rows = [Row(*row) for row in sequences]
    if not rows or any(r.new < 1 or r.past < 0 for r in rows):
        raise UsageError(f"sequences are {rows[:4]}; each needs new >= 1 and past >= 0")
    tokens = sum(r.new for r in rows)
    count = count_parameters(spec)
    heads = len(rows) if sampled is None else sampled
    parts = [
        *_weights(spec, count, tokens=tokens, sampled=heads, weight_bytes=weight_bytes),
        _attention(spec, rows, kv_dtype),
    ]
    if spec.state_layers:
        parts.append(_states(spec, rows))
    return StepWork(tuple(parts), tokens, len(rows))


def decode_work(
    spec: ModelSpec,
    *,
    batch: int,
    context_tokens: float,
    weight_bytes: float = 2,
    kv_dtype: str = "auto",
) -> StepWork:
    """One decode step: ``batch`` sequences, one new token each, ``context_tokens`` with it."""
    if batch < 1 or context_tokens < 1:
        raise UsageError(f"batch {batch} and context_tokens {context_tokens} must be at least 1")
    rows = [(1, round(context_tokens) - 1)] * batch
    return step_work(spec, rows, weight_bytes=weight_bytes, kv_dtype=kv_dtype)


def prefill_work(
    spec: ModelSpec, *, tokens: int, past: int = 0, weight_bytes: float = 2, kv_dtype: str = "auto"
) -> StepWork:
    """A prefill step of ``tokens`` tokens behind ``past`` cached ones; one position is sampled."""
    return step_work(spec, [(tokens, past)], weight_bytes=weight_bytes, kv_dtype=kv_dtype)


def _weights(
    spec: ModelSpec, count: ParameterCount, *, tokens: int, sampled: int, weight_bytes: float
) -> list[Operation]:
    """Mixer projections, dense and expert parts, output head: 2 operations per weight and token."""
    head = spec.vocab * spec.hidden
    touched, active = _experts(spec, count, tokens)
    parts = [
        Operation("projections", 2.0 * tokens * count.mixers, count.mixers * weight_bytes),
        Operation("feed-forward", 2.0 * tokens * count.dense, count.dense * weight_bytes),
        Operation("head", 2.0 * sampled * head, head * weight_bytes),
    ]
    if count.experts:
        parts.append(Operation("experts", 2.0 * tokens * active, touched * weight_bytes))
    other = count.extras - count.lookups + count.norms
    parts.append(Operation("norms and rest", 2.0 * tokens * other, other * weight_bytes))
    return parts


def _experts(spec: ModelSpec, count: ParameterCount, tokens: int) -> tuple[float, float]:
    """(weights of experts that some token uses, weights that one token uses), over all layers."""
    layers = [la.feed_forward for la in spec.layers if la.feed_forward and la.feed_forward.experts]
    if not count.experts or not layers:
        return 0.0, 0.0
    sizes = [f.experts * f.width * f.matrices for f in layers]
    share = [count.experts * size / sum(sizes) for size in sizes]
    touched = sum(s * expected_experts(f, tokens=tokens) / f.experts
                  for s, f in zip(share, layers, strict=True))  # fmt: skip
    active = sum(s * f.active_experts / f.experts for s, f in zip(share, layers, strict=True))
    return touched, active


def expected_experts(part: FeedForward, *, tokens: int) -> float:
    """Experts that ``tokens`` tokens touch when each picks ``k`` of ``E`` at random.

    ``E * (1 - (1 - k/E)^T)``. Real routers are uneven, so this is an upper estimate.
    """
    missed = (1 - part.active_experts / part.experts) ** tokens
    return part.experts * (1 - missed)


def _attention(spec: ModelSpec, rows: Sequence[Row], kv_dtype: str) -> Operation:
    kind = resolve_kv_dtype(spec, dtype=kv_dtype)
    flops = cache = 0.0
    for layer in spec.attention_layers:
        stored = layer_bytes_per_token(layer, dtype=kind)
        keys = layer.indexer.bytes_per_token if layer.indexer else 0
        for new, past in rows:
            flops += attention_flops(layer, new=new, past=past)
            flops += indexer_flops(layer, new=new, past=past)
            # Old tokens are read, new ones written. A layer that shares a cache adds no bytes.
            cache += stored * (old_tokens_read(layer, past=past) + new) + keys * (past + new)
    return Operation("attention", flops, cache_bytes=cache)


def old_tokens_read(layer: Attention, *, past: int) -> int:
    """Cached tokens that a step must read at least: those that its first new token looks at.

    All ``past`` ones; with a window W at most ``W - 1`` (the new token is in it); with chunks of C
    those of the running chunk, ``past mod C``; behind an indexer at most its top k.
    """
    if layer.kind == "chunked" and layer.window_tokens:
        return past % layer.window_tokens
    if layer.window_tokens is not None:
        return min(past, layer.window_tokens - 1)
    return min(past, layer.indexer.topk) if layer.indexer else past


def attention_flops(layer: Attention, *, new: int, past: int) -> float:
    """Operations of scores and weighted values of one layer for one sequence, causal half saved.

    Each new token at position p looks at p tokens, at most at its window or the indexer's top k,
    with chunks of C at ``(p - 1) mod C + 1``, and spends ``2 * H * (D_k + D_v)`` on each. MLA in
    decode works on the latent: ``D_k = rank + rope, D_v = rank`` (weight absorption); in prefill on
    the full heads.
    """
    wide_k, wide_v = layer.head_dim_k, layer.head_dim_v
    if layer.latent is not None and new == 1:
        wide_k, wide_v = layer.latent.cached_dim, layer.latent.kv_rank
    if layer.kind == "chunked" and layer.window_tokens:
        size = layer.window_tokens
        looked_at = _chunk_pairs(past + new, size) - _chunk_pairs(past, size)
    else:
        most = layer.indexer.topk if layer.indexer else layer.window_tokens
        looked_at = _pairs(new, past, most)
    return 2.0 * layer.query_heads * (wide_k + wide_v) * looked_at


def indexer_flops(layer: Attention, *, new: int, past: int) -> float:
    """Operations with which sparse attention picks its tokens: ``2 * H_i * D_i`` per visible one.

    It looks at the whole context for every new token. 0 without an indexer.
    """
    if layer.indexer is None:
        return 0.0
    return 2.0 * layer.indexer.heads * layer.indexer.head_dim * _pairs(new, past, None)


def _pairs(new: int, past: int, window: int | None) -> float:
    """Query-key pairs: sum over the new tokens of the tokens each may see, itself included."""
    first, last = past + 1, past + new
    if window is None or last <= window:
        return (first + last) * new / 2
    inside = max(0, window - past)  # new tokens whose window is not yet full
    return (first + past + inside) * inside / 2 + (new - inside) * float(window)


def _chunk_pairs(tokens: int, size: int) -> float:
    """Pairs of all tokens up to this one where each sees its own chunk up to itself."""
    whole, rest = divmod(tokens, size)
    return (whole * size * (size + 1) + rest * (rest + 1)) / 2


def _states(spec: ModelSpec, rows: Sequence[Row]) -> Operation:
    """Fixed states: written once per sequence and step, and read where something is cached."""
    elements = sum(sum(state_elements(layer)) for layer in spec.state_layers)
    tokens = sum(r.new for r in rows)
    moved = float(sum(1 + (r.past > 0) for r in rows) * state_bytes_per_request(spec))
    return Operation("states", float(STATE_OPS) * elements * tokens, cache_bytes=moved)
