"""Activations that autograd keeps for the backward pass, counted while it keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch


class KeptActivations:
    """Bytes of the distinct storages that graphs hold; ``ignored`` tensors (weights) are not.

    ``live_bytes`` now, ``most_bytes`` at the fullest moment.
    """

    def __init__(self, ignored: Iterable[torch.Tensor]) -> None:
        self._ignored = {tensor.untyped_storage().data_ptr() for tensor in ignored}
        self._holders: dict[int, int] = {}
        self.live_bytes = self.most_bytes = 0

    @contextmanager
    def counting(self) -> Iterator[KeptActivations]:
        """Count what forward passes inside this block save, until their backward frees it."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda held: held.tensor):
            yield self

    def _pack(self, tensor: torch.Tensor) -> _Held:
        storage = tensor.untyped_storage()
        held = _Held(self, tensor, storage.data_ptr(), storage.nbytes())
        if held.key not in self._ignored:
            if self._holders.get(held.key, 0) == 0:
                self.live_bytes += held.size_bytes
                self.most_bytes = max(self.most_bytes, self.live_bytes)
            self._holders[held.key] = self._holders.get(held.key, 0) + 1
        return held

    def free(self, key: int, size_bytes: int) -> None:
        """One holder of this storage is gone; with the last one its bytes are."""
        if key in self._ignored:
            return
        self._holders[key] -= 1
        if self._holders[key] == 0:
            del self._holders[key]
            self.live_bytes -= size_bytes


class _Held:
    """A saved tensor. It goes when autograd lets go of it; then its bytes go from the count."""

    def __init__(
        self, meter: KeptActivations, tensor: torch.Tensor, key: int, size_bytes: int
    ) -> None:
        self.meter, self.tensor, self.key, self.size_bytes = meter, tensor, key, size_bytes

    def __del__(self) -> None:
        self.meter.free(self.key, self.size_bytes)
