"""Magnitude pruning, for contrast: fewer weights instead of fewer bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.pack import packed_bytes


@dataclass(frozen=True, eq=False)
class Pruned:
    """A weight matrix with zeros, and the bytes of a layout that leaves them out.

    ``values``: [outputs, inputs], float32. ``kept``: weights that are stored.
    ``index_bits``: bits that say where they are: one per place for a free pattern, two per kept
    weight for the 2:4 pattern (the layout of NVIDIA's sparse tensor cores).
    """

    values: np.ndarray
    kept: int
    index_bits: int

    @property
    def sparsity(self) -> float:
        """Share of the weights that is not stored."""
        return 1 - self.kept / self.values.size

    @property
    def bytes(self) -> int:
        """16-bit kept values and their index: ``2 * kept + ceil(index_bits / 8)``."""
        return 2 * self.kept + packed_bytes(self.index_bits, bits=1)


def prune_magnitude(weight: np.ndarray, *, sparsity: float) -> Pruned:
    """Set the share ``sparsity`` of the weights with the smallest magnitude to zero.

    The order is by magnitude over the whole matrix, equal ones in their own order. Raises
    UsageError for a share outside 0 to 1.
    """
    if not 0 <= sparsity <= 1:
        raise UsageError(f"sparsity is {sparsity}; allowed: 0 to 1")
    flat = weight.reshape(-1)
    dropped = round(sparsity * flat.size)
    values = flat.astype(np.float32).copy()
    values[np.argsort(np.abs(flat), kind="stable")[:dropped]] = 0.0
    return Pruned(values.reshape(weight.shape), flat.size - dropped, flat.size)


def prune_two_of_four(weight: np.ndarray) -> Pruned:
    """Keep the two largest of every four neighbours along the inputs.

    Raises UsageError when the number of inputs is no multiple of four.
    """
    if weight.shape[-1] % 4:
        raise UsageError(f"{weight.shape[-1]} inputs; the 2:4 pattern needs a multiple of four")
    fours = weight.astype(np.float32).reshape(-1, 4).copy()
    smallest = np.argsort(np.abs(fours), axis=1, kind="stable")[:, :2]
    np.put_along_axis(fours, smallest, 0.0, axis=1)
    kept = weight.size // 2
    return Pruned(fours.reshape(weight.shape), kept, 2 * kept)
