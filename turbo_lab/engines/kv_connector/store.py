"""Prefixes that a producer keeps in its host's memory until they are fetched or pushed out."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turbo_lab.core.errors import UsageError


def prefix_key(token_ids: Sequence[int], *, model: str) -> str:
    """Name of a prefix: BLAKE2b over the model's name and all token ids (8 bytes each)."""
    digest = hashlib.blake2b(model.encode(), digest_size=16)
    digest.update(np.asarray(token_ids, dtype="<i8").tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Geometry:
    """What both sides must agree on: layer names, dtype, and one block of one layer."""

    layers: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]
    block_tokens: int

    def describe(self) -> dict[str, object]:
        """As JSON."""
        return {"layers": list(self.layers), "dtype": self.dtype, "shape": list(self.shape),
                "block_tokens": self.block_tokens}  # fmt: skip

    def difference(self, told: dict[str, object]) -> str | None:
        """In words, what the other side has differently; None when all is equal."""
        for name, own in self.describe().items():
            if told.get(name) != own:
                if name == "layers":
                    return "the two engines name their layers differently"
                return f"{name} is {told.get(name)} at the producer and {own} here"
        return None


@dataclass(frozen=True)
class Prefix:
    """A kept prefix: ``blocks[block][layer]`` is one block's bytes (uint8, one dimension)."""

    key: str
    geometry: Geometry
    blocks: tuple[tuple[np.ndarray, ...], ...]

    @property
    def tokens(self) -> int:
        """Tokens in whole blocks."""
        return len(self.blocks) * self.geometry.block_tokens

    @property
    def size_bytes(self) -> int:
        """Bytes of all blocks."""
        return sum(layer.nbytes for block in self.blocks for layer in block)


class KvStore:
    """Prefixes up to ``limit_bytes`` in all; the one longest unused is pushed out first."""

    def __init__(self, *, limit_bytes: int) -> None:
        if limit_bytes < 1:
            raise UsageError(f"limit_bytes is {limit_bytes}; it must be above 0")
        self.limit_bytes = limit_bytes
        self._held: OrderedDict[str, Prefix] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, key: str) -> bool:
        """Whether this prefix is held."""
        with self._lock:
            return key in self._held

    @property
    def size_bytes(self) -> int:
        """Bytes of all prefixes."""
        with self._lock:
            return sum(prefix.size_bytes for prefix in self._held.values())

    def put(self, prefix: Prefix) -> None:
        """Keep a prefix. One that is larger than the whole store is not kept."""
        if prefix.size_bytes > self.limit_bytes:
            return
        with self._lock:
            self._held[prefix.key] = prefix
            self._held.move_to_end(prefix.key)
            while sum(held.size_bytes for held in self._held.values()) > self.limit_bytes:
                self._held.popitem(last=False)

    def get(self, key: str) -> Prefix | None:
        """The prefix, which is then the one used last; None when it is not held."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)
