"""A whole model whose every attention layer is cut over n hosts and merged: exactly or by tables.

Each query is treated as the decode step at its own length: its context is cut into n consecutive
parts, every part gives an output and a base-2 weight, and the parts are merged. So one pass over a
text measures a decode step at every position.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from turbo_lab.core.errors import MissingDependencyError, UsageError
from turbo_lab.precision.eviction import attention_modules
from turbo_lab.turbo.merge import LOG2_E
from turbo_lab.turbo.tables import Calibration, TableMachine

try:
    import torch
    from transformers import AttentionInterface, DynamicCache
    from transformers.masking_utils import AttentionMaskInterface, eager_mask
except ImportError as error:
    raise MissingDependencyError("transformers", needed_for="a sharded model") from error

NAME = "turbo_lab_sharded"
Parts = tuple[torch.Tensor, torch.Tensor]
Merging = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]


def shard_of(queries: int, keys: int, *, shards: int) -> torch.Tensor:
    """Part of every (query, key): consecutive equal parts of what the query sees; -1: not seen.

    Query i is the i-th of the last ``queries`` of ``keys`` positions. Key j of a context of c
    tokens belongs to part ``((j + 1) * shards - 1) // c``, which is the cut of
    :func:`turbo_lab.turbo.merge.shard_bounds`.
    """
    seen = torch.arange(keys - queries + 1, keys + 1)[:, None]
    places = torch.arange(keys)[None, :]
    part = ((places + 1) * shards - 1) // seen
    return torch.where(places < seen, part, -1)


def partial_results(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, shards: int, scaling: float
) -> Parts:
    """Parts of one layer for one sequence.

    Args:
        query: (heads, queries, dim). key, value: (kv_heads, keys, dim), the queries' own included.
        shards: parts that each query's context is cut into.
        scaling: of the scores.

    Returns:
        Outputs (shards, heads, queries, dim) and base-2 weights (shards, heads, queries); an empty
        part has zeros and ``-inf``.
    """
    groups = query.shape[0] // key.shape[0]
    key, value = (x.repeat_interleave(groups, dim=0) for x in (key, value))
    scores = (query @ key.transpose(1, 2)) * (scaling * LOG2_E)
    part = shard_of(query.shape[1], key.shape[1], shards=shards)
    outputs, weights = [], []
    for shard in range(shards):
        own = scores.masked_fill(part != shard, -torch.inf)
        top = own.amax(dim=-1, keepdim=True)
        shares = torch.exp2(own - top.masked_fill(top == -torch.inf, 0.0))
        total = shares.sum(dim=-1, keepdim=True)
        outputs.append((shares @ value) / total.clamp_min(1e-30))
        weights.append((top + torch.log2(total))[..., 0])
    return torch.stack(outputs), torch.stack(weights)


def merge_exactly(layer: int, outputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The exact rule, in the model's own precision."""
    return (torch.softmax(weights * (1 / LOG2_E), dim=0)[..., None] * outputs).sum(dim=0)


@dataclass
class Calibrating:
    """Merges exactly, and keeps the largest magnitude and the range of gamma per layer and head."""

    largest: dict[int, np.ndarray] = field(default_factory=dict)
    top: dict[int, np.ndarray] = field(default_factory=dict)
    low: dict[int, np.ndarray] = field(default_factory=dict)

    def __call__(self, layer: int, outputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See :data:`Merging`."""
        seen = outputs.abs().amax(dim=(0, 2, 3)).double().numpy()
        gamma = torch.logsumexp(weights / LOG2_E, dim=0).double().numpy() * LOG2_E
        self.largest[layer] = np.maximum(self.largest.get(layer, 0.0), seen)
        self.top[layer] = np.maximum(self.top.get(layer, -np.inf), gamma.max(axis=-1))
        self.low[layer] = np.minimum(self.low.get(layer, np.inf), gamma.min(axis=-1))
        return merge_exactly(layer, outputs, weights)

    def done(self) -> dict[int, Calibration]:
        """Scales and offsets by layer."""
        return {
            n: Calibration(self.largest[n], self.top[n], low_gamma=self.low[n])
            for n in self.largest
        }


@dataclass
class Tabled:
    """Merges by a table machine; counts values and gammas that were cut off at the top."""

    machine: TableMachine
    fixed: dict[int, Calibration]
    tree: str = "chain"
    values: int = 0
    saturated: int = 0
    heavy: int = 0

    def __call__(self, layer: int, outputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See :data:`Merging`."""
        scale = self.fixed[layer].scale(self.machine)[:, None, None]
        offset = self.fixed[layer].offset(self.machine)[:, None]
        real, gammas = outputs.numpy(), weights.numpy()
        codes = self.machine.code_values(real, scale=scale)
        gamma = self.machine.code_gamma(gammas, offset=offset)
        self.values += codes.size
        self.saturated += int((np.abs(real) > scale * (self.machine.largest_value + 0.5)).sum())
        self.heavy += int((gamma == self.machine.largest_gamma).sum())
        merged, _ = self.machine.merge(codes, gamma, tree=self.tree)
        return torch.from_numpy((merged * scale).astype(np.float32))


@dataclass
class Rounded:
    """The control: values in plain codes of ``bits`` bits, weights and merge exact."""

    fixed: dict[int, Calibration]
    bits: int = 8

    def __call__(self, layer: int, outputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See :data:`Merging`."""
        machine = TableMachine(value_bits=self.bits)
        scale = torch.from_numpy(self.fixed[layer].scale(machine)).float()[:, None, None]
        top = machine.largest_value
        return merge_exactly(layer, (outputs / scale).round().clamp(-top, top) * scale, weights)


def _attend(
    module: Any, query: Any, key: Any, value: Any, mask: Any, **told: Any
) -> tuple[torch.Tensor, None]:
    """What transformers calls in place of its own attention; the mask is always causal."""
    if query.shape[0] != 1:
        raise UsageError(f"a sharded model takes one sequence at a time, not {query.shape[0]}")
    shards, merging = getattr(module, NAME)
    outputs, weights = partial_results(
        query[0], key[0], value[0], shards=shards, scaling=told["scaling"]
    )
    merged = merging(module.layer_idx, outputs, weights)
    return merged.transpose(0, 1)[None].contiguous(), None


@contextlib.contextmanager
def sharded(model: Any, *, shards: int, merging: Merging) -> Iterator[None]:
    """The model's attention layers cut into ``shards`` parts while inside.

    For full causal attention and one sequence at a time. Raises UsageError for fewer than one
    shard, and for a model with other kinds of attention.
    """
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if shards < 1 or kinds != {"full_attention"}:
        raise UsageError(
            f"{shards} shards of {sorted(kinds)}; allowed: 1 or more, of full_attention only"
        )
    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, eager_mask)
    before, modules = model.config._attn_implementation, attention_modules(model)
    for module in modules:
        setattr(module, NAME, (shards, merging))
    try:
        model.set_attn_implementation(NAME)
        yield
    finally:
        model.set_attn_implementation(before)
        for module in modules:
            delattr(module, NAME)


class ShardedCache(DynamicCache):
    """A plain cache whose passes run sharded; goes wherever a quality subject takes a cache."""

    def __init__(self, config: Any, *, shards: int, merging: Merging) -> None:
        super().__init__(config=config)
        self.shards, self.merging = shards, merging

    def attached(self, model: Any) -> contextlib.AbstractContextManager[None]:
        """Entered around every pass."""
        return sharded(model, shards=self.shards, merging=self.merging)
