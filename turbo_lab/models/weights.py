"""Bytes of the weights as the engine holds them: parameters, quantisation scales, rotary table."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass

from turbo_lab.models.matrices import Matrix, layer_matrices
from turbo_lab.models.parameters import count_parameters
from turbo_lab.models.quantization import WeightFormat, weight_format
from turbo_lab.models.rotary import rotary_cache_bytes
from turbo_lab.models.spec import ModelSpec

_WIDTH_BYTES = 2  # served in a 16-bit dtype, whatever the checkpoint was saved in


@dataclass(frozen=True)
class WeightBytes:
    """Weights by part. ``per_rank``: one tensor-parallel rank of one pipeline stage, on average.

    ``plain``: parameters in the 16-bit serving dtype; ``packed``: those in the quantised format;
    ``scales``: its scales and zero points; ``rotary``: the table of sines and cosines.
    """

    plain: int
    packed: int
    scales: int
    rotary: int
    format: str
    per_rank: int
    note: str = ""

    @property
    def total(self) -> int:
        """All of it on one device."""
        return self.plain + self.packed + self.scales + self.rotary


def weight_bytes(
    spec: ModelSpec, *, tensor_parallel: int = 1, pipeline_parallel: int = 1
) -> WeightBytes | None:
    """Bytes of the weights; None when the checkpoint's format has no rule here.

    Matrices divide by the tensor-parallel ranks, norms and the rotary table do not; parameters
    in a vision tower that cannot be counted are left out and noted.
    """
    chosen = weight_format(spec)
    if chosen is None:
        return None
    packed_elements = packed = scales = 0
    for index, layer in enumerate(spec.layers):
        for matrix in layer_matrices(spec, layer):
            if chosen.bits and _is_packed(chosen, matrix, index):
                packed_elements += matrix.elements
                packed += matrix.elements * chosen.bits // 8
                scales += chosen.scale_bytes(matrix)
    count = count_parameters(spec)
    width = _WIDTH_BYTES
    plain = (count.total - packed_elements) * width
    rotary = rotary_cache_bytes(spec, element_bytes=width)
    replicated = count.norms * width
    split = (plain + packed + scales - replicated) // tensor_parallel + replicated
    note = "the vision tower is not counted" if count.vision is None else ""
    return WeightBytes(
        plain, packed, scales, rotary, chosen.name, split // pipeline_parallel + rotary, note
    )


def _is_packed(chosen: WeightFormat, matrix: Matrix, index: int) -> bool:
    if chosen.experts_only and "experts" not in matrix.name:
        return False
    name = f"model.layers.{index}.{matrix.name}"
    return not any(_matches(pattern, name) for pattern in chosen.ignored)


def _matches(pattern: str, name: str) -> bool:
    """Whether an entry of an ignore list means this module: a regex, a glob, or a part of it."""
    if pattern.startswith("re:"):
        return re.match(pattern[3:], name) is not None
    if "*" in pattern:
        return fnmatch.fnmatch(name, pattern + "*")
    return f".{pattern.strip('.')}." in f".{name}."
