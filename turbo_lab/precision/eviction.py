"""Token eviction: a cache of bounded length that drops tokens instead of bits.

The rules are in ``eviction_rule``. Kept keys keep the position they were made with. Eviction
follows a pass, so all new tokens of a pass see each other and everything that was still there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from turbo_lab.core.errors import MissingDependencyError, UsageError
from turbo_lab.precision.eviction_rule import Eviction

try:
    import torch
    from transformers.cache_utils import Cache, CacheLayerMixin
except ImportError as error:
    raise MissingDependencyError("transformers", needed_for="token eviction") from error


class EvictingLayer(CacheLayerMixin):
    """One layer: kept keys, values and (for heavy hitters) the attention each token has drawn."""

    is_sliding = False
    supports_early_init = False

    def __init__(self, eviction: Eviction) -> None:
        super().__init__()
        self.eviction = eviction
        self.seen_tokens = 0
        self.scores: torch.Tensor | None = None
        self._waiting = False

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Start with nothing kept."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        if self.eviction.heavy_tokens:
            self.scores = torch.zeros((*key_states.shape[:2], 0), device=self.device)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Give back what is kept and the new tokens; then evict (heavy hitters: once observed)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if self._waiting:
            raise UsageError(
                "heavy hitters saw no attention weights: run the model inside cache.attached(model)"
            )
        keys = torch.cat([self.keys, key_states], dim=2)
        values = torch.cat([self.values, value_states], dim=2)
        self.keys, self.values = keys, values
        self.seen_tokens += key_states.shape[2]
        if self.scores is None:
            self._keep_sink_and_window()
        else:
            self._waiting = True
        return keys, values

    def _keep_sink_and_window(self) -> None:
        if self.keys.shape[2] <= self.eviction.budget_tokens:
            return
        first, last = self.eviction.sink_tokens, self.eviction.window_tokens
        for name in ("keys", "values"):
            whole = getattr(self, name)
            setattr(self, name, torch.cat([whole[:, :, :first], whole[:, :, -last:]], dim=2))

    def observe(self, weights: torch.Tensor) -> None:
        """Add the attention [batch, query heads, queries, keys] of a pass, then evict."""
        assert self.scores is not None
        batch, heads, _, length = weights.shape
        groups = self.keys.shape[1]
        drawn = weights.float().sum(dim=2).view(batch, groups, heads // groups, length).sum(dim=2)
        drawn[:, :, : self.scores.shape[2]] += self.scores
        self.scores, self._waiting = drawn, False
        if length > self.eviction.budget_tokens:
            self._keep_heavy()

    def _keep_heavy(self) -> None:
        """Sinks and window get an endless score; the best of all stay, in their order."""
        rank = self.scores.clone()
        rank[:, :, : self.eviction.sink_tokens] = torch.inf
        rank[:, :, -self.eviction.window_tokens :] = torch.inf
        best = rank.topk(self.eviction.budget_tokens, dim=2).indices.sort(dim=2).values
        wide = best[..., None].expand(*best.shape, self.keys.shape[-1])
        self.keys, self.values = self.keys.gather(2, wide), self.values.gather(2, wide)
        self.scores = self.scores.gather(2, best)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys of the next pass, and a first position that makes all kept ones visible."""
        kept = self.keys.shape[2] if self.is_initialized else 0
        return kept + query_length, self.seen_tokens - kept

    def get_seq_length(self) -> int:
        """Tokens seen, kept or not: new ones get their true position."""
        return self.seen_tokens

    def get_max_length(self) -> int:
        """No bound on the length of the text."""
        return -1

    def reset(self) -> None:
        """Forget everything."""
        self.keys = self.values = self.scores = None
        self.seen_tokens, self.is_initialized, self._waiting = 0, False, False

    @property
    def stored_bytes(self) -> int:
        """Bytes of the kept tensors."""
        kept = [t for t in (self.keys, self.values, self.scores) if t is not None]
        return sum(t.numel() * t.element_size() for t in kept)


class EvictingCache(Cache):
    """The cache of a whole model that keeps a bounded number of tokens per layer."""

    def __init__(self, config: Any, eviction: Eviction) -> None:
        text = config.get_text_config(decoder=True)
        super().__init__(layers=[EvictingLayer(eviction) for _ in range(text.num_hidden_layers)])
        self.eviction = eviction

    @property
    def stored_bytes(self) -> int:
        """Bytes of all that is kept, over all layers."""
        return sum(layer.stored_bytes for layer in self.layers)

    @contextlib.contextmanager
    def attached(self, model: Any) -> Iterator[None]:
        """Let the layers see the attention weights (eager attention) while inside.

        For sink plus window nothing is needed and nothing changes.
        """
        if not self.eviction.heavy_tokens:
            yield
            return
        before = model.config._attn_implementation
        model.set_attn_implementation("eager")
        hooks = [m.register_forward_hook(self._hook) for m in attention_modules(model)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            model.set_attn_implementation(before)

    def _hook(self, module: Any, inputs: Any, output: Any) -> None:
        self.layers[module.layer_idx].observe(output[1])


def attention_modules(model: Any) -> list[Any]:
    """The attention modules of a transformers model: those with a layer index and a scaling."""
    found = [m for m in model.modules() if hasattr(m, "layer_idx") and hasattr(m, "scaling")]
    if not found:
        raise UsageError(f"{type(model).__name__} has no attention modules that are known here")
    return found
