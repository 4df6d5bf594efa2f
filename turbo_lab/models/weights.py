"""Bytes of the weights as the engine holds them: parameters, quantisation scales, rotary table."""

from __future__ import annotations

from dataclasses import dataclass

from turbo_lab.models.dtypes import element_bytes
from turbo_lab.models.matrices import Matrix, layer_matrices
from turbo_lab.models.memory import compute_dtype
from turbo_lab.models.parameters import count_parameters
from turbo_lab.models.quantization import weight_format
from turbo_lab.models.rank_weights import stage_rank_bytes
from turbo_lab.models.rotary import rotary_cache_bytes
from turbo_lab.models.spec import ModelSpec


@dataclass(frozen=True)
class WeightBytes:
    """Weights by part. ``per_rank``: one tensor-parallel rank of the fullest pipeline stage.

    ``plain``: parameters in the dtype that is served; ``packed``: those in the quantised format;
    ``scales``: its scales and zero points; ``rotary``: the table of sines and cosines. ``format``:
    the quantised format, or the dtype that is served.
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
    spec: ModelSpec,
    *,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    dtype: str = "auto",
) -> WeightBytes | None:
    """Bytes of the weights; None when the checkpoint's format has no rule here.

    Parameters in a vision tower that cannot be counted are left out and noted. ``dtype``: what the
    engine computes in (``--dtype``) and keeps plain weights in; ``auto`` is 16 bits, whatever the
    checkpoint was saved in. What a rank has: see ``rank_weights.stage_rank_bytes``. Raises
    UsageError for an impossible split.
    """
    chosen = weight_format(spec)
    if chosen is None:
        return None
    served = compute_dtype(spec, dtype=dtype)
    width = element_bytes(served)
    packed_elements = packed = scales = 0
    for index, layer in enumerate(spec.layers):
        for matrix in layer_matrices(spec, layer):
            if chosen.packs(matrix, layer=index):
                packed_elements += matrix.elements
                packed += matrix.elements * chosen.bits // 8
                scales += chosen.scale_bytes(matrix)
    count = count_parameters(spec)
    rotary = rotary_cache_bytes(spec, element_bytes=width)

    def stored(matrix: Matrix, index: int) -> int:
        if not chosen.packs(matrix, layer=index):
            return matrix.elements * width
        return matrix.elements * chosen.bits // 8 + chosen.scale_bytes(matrix)

    per_stage = stage_rank_bytes(
        spec, count, stored=stored, element_bytes=width, tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
    )  # fmt: skip
    return WeightBytes(
        plain=(count.total - packed_elements) * width, packed=packed, scales=scales, rotary=rotary,
        format=chosen.name if chosen.bits else served, per_rank=max(per_stage) + rotary,
        note="the vision tower is not counted" if count.vision is None else "",
    )  # fmt: skip
