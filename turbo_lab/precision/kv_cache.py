"""A quantised KV cache behind transformers' cache interface: what attention reads is what is kept.

``quantized_cache(model.config, scheme)`` goes wherever a ``DynamicCache`` goes (``generate`` and
``forward`` alike). Keys arrive after the rotary embedding. Beam search and cropping are refused.
"""

from __future__ import annotations

from typing import Any

from turbo_lab.core.errors import MissingDependencyError, UsageError
from turbo_lab.precision.kv_cache_scheme import KvScheme, Rotation
from turbo_lab.precision.kv_cache_store import TokenStore

try:
    import torch
    from transformers.cache_utils import Cache, CacheLayerMixin
except ImportError as error:
    raise MissingDependencyError("transformers", needed_for="a quantised KV cache") from error


def hadamard(size: int) -> torch.Tensor:
    """Sylvester's orthogonal Hadamard matrix, entries ``+-1 / sqrt(size)``; size a power of two."""
    if size < 1 or size & (size - 1):
        raise UsageError(f"size is {size}; a Hadamard matrix here needs a power of two")
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        top = torch.cat([matrix, matrix], dim=1)
        matrix = torch.cat([top, torch.cat([matrix, -matrix], dim=1)])
    return matrix / size**0.5


def rotation_matrix(kind: Rotation, *, size: int, seed: int = 0) -> torch.Tensor | None:
    """The orthogonal matrix of that name (None for "none"); random: QR of Gaussian numbers."""
    if kind == "none":
        return None
    if kind == "hadamard":
        return hadamard(size)
    drawn = torch.randn(size, size, generator=torch.Generator().manual_seed(seed))
    q, r = torch.linalg.qr(drawn)
    return q * r.diagonal().sign()


class QuantizedKvLayer(CacheLayerMixin):
    """One layer: two stores, one for keys and one for values."""

    is_sliding = False
    supports_early_init = False

    def __init__(self, scheme: KvScheme) -> None:
        super().__init__()
        self.scheme = scheme
        self.seen_tokens = 0
        self.stores: tuple[TokenStore, TokenStore] | None = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Make the stores once the sizes are known."""
        made = []
        for scheme, states in ((self.scheme.keys, key_states), (self.scheme.values, value_states)):
            turn = rotation_matrix(
                self.scheme.rotation, size=states.shape[-1], seed=self.scheme.seed
            )
            turn = turn.to(states.device) if turn is not None else None
            made.append(TokenStore(scheme, self.scheme, rotation=turn))
        self.stores = (made[0], made[1])
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the new tokens, then give back all stored ones."""
        if self.stores is None:
            self.lazy_initialization(key_states, value_states)
        assert self.stores is not None
        for store, states in zip(self.stores, (key_states, value_states), strict=True):
            store.append(states)
        self.seen_tokens += key_states.shape[-2]
        return self.stores[0].read(), self.stores[1].read()

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys that the next pass will see, and the position of the first."""
        return self.seen_tokens + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens seen."""
        return self.seen_tokens

    def get_max_length(self) -> int:
        """No bound."""
        return -1

    def reset(self) -> None:
        """Forget everything."""
        self.stores, self.seen_tokens, self.is_initialized = None, 0, False

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Refused: packed blocks are not reordered."""
        raise UsageError("the quantised cache does not do beam search; use greedy or sampling")

    @property
    def stored_bytes(self) -> int:
        """Bytes of all that this layer keeps."""
        return sum(store.bytes for store in self.stores) if self.stores else 0


class QuantizedKvCache(Cache):
    """The cache of a whole model: one QuantizedKvLayer per layer."""

    def __init__(self, config: Any, scheme: KvScheme) -> None:
        text = config.get_text_config(decoder=True)
        kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"}:
            raise UsageError(
                f"the quantised cache is for full attention; this model has {sorted(kinds)}"
            )
        super().__init__(layers=[QuantizedKvLayer(scheme) for _ in range(text.num_hidden_layers)])
        self.scheme = scheme

    @property
    def stored_bytes(self) -> int:
        """Bytes of all that is kept, over all layers."""
        return sum(layer.stored_bytes for layer in self.layers)


def quantized_cache(config: Any, scheme: KvScheme) -> QuantizedKvCache:
    """A new empty cache for a model with this config. Raises UsageError for sliding windows."""
    return QuantizedKvCache(config, scheme)


def plain_cache_bytes(cache: Cache) -> int:
    """Bytes of keys and values in a cache of plain tensors, such as a DynamicCache."""
    return sum(
        t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values)
    )
