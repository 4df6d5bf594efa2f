"""Bytes of the weights on one rank: what tensor parallelism divides and what every rank keeps."""

from __future__ import annotations

from collections.abc import Callable

from turbo_lab.models.layers import Layer
from turbo_lab.models.matrices import Matrix, layer_matrices
from turbo_lab.models.memory import kv_heads_per_rank
from turbo_lab.models.parameters import ParameterCount
from turbo_lab.models.spec import ModelSpec
from turbo_lab.models.stages import pipeline_stages

# The ways to MLA's latents, to the indexer and to latent experts: every rank has them whole.
_WHOLE = ("q_a_proj", "kv_a_proj_with_mqa", "indexer.wq_b", "indexer.wk", "fc1_latent_proj",
          "fc2_latent_proj")  # fmt: skip
_KEYS_AND_VALUES = ("self_attn.k_proj", "self_attn.v_proj")

Stored = Callable[[Matrix, int], int]  # bytes of a matrix of the layer with this index


def stage_rank_bytes(
    spec: ModelSpec,
    count: ParameterCount,
    *,
    stored: Stored,
    element_bytes: int,
    tensor_parallel: int,
    pipeline_parallel: int,
) -> tuple[int, ...]:
    """Bytes on one rank of each pipeline stage, without the rotary table.

    Matrices divide by the ranks, but for keys and values with fewer heads than ranks (copies) and
    for MLA's way down to its latents; routers and norms do not divide. The first stage has the
    embedding and a vision tower, the last one the output head, which with tied embeddings is the
    embedding once more. Biases, convolutions and the like are spread evenly. (Some of vLLM's
    classes, such as Qwen3 MoE's, build both ends on every stage; that is not in it.) Source: the
    ``ReplicatedLinear`` layers of vLLM's models and ``QKVParallelLinear``.

    Args:
        spec: the model.
        count: its parameters.
        stored: bytes of a matrix as it is kept, scales included.
        element_bytes: of a weight that is not packed.
        tensor_parallel: ranks of a stage.
        pipeline_parallel: stages.

    Raises:
        UsageError: more stages than layers, or KV heads and ranks that do not divide.
    """
    ranks, sums = tensor_parallel, [0.0] * pipeline_parallel
    stages = pipeline_stages(len(spec.layers), stages=pipeline_parallel)
    elements = routers = 0
    for index, (stage, layer) in enumerate(zip(stages, spec.layers, strict=True)):
        for matrix in layer_matrices(spec, layer):
            elements += matrix.elements
            sums[stage] += stored(matrix, index) * _share(matrix, layer, ranks)
        router = _router(spec, layer)
        routers += router
        sums[stage] += router * element_bytes
    first = count.embedding + count.lookups + (count.vision or 0)
    sums[0] += first * element_bytes / ranks
    head = count.embedding if spec.tied_embeddings else count.head
    if pipeline_parallel > 1 or not spec.tied_embeddings:
        sums[-1] += head * element_bytes / ranks
    rest = count.total - elements - routers - count.norms - first - count.head
    everywhere = (count.norms + rest / ranks) * element_bytes / pipeline_parallel
    return tuple(round(size + everywhere) for size in sums)


def _share(matrix: Matrix, layer: Layer, ranks: int) -> float:
    """Part of a matrix that one rank keeps."""
    if matrix.name.endswith(_WHOLE):
        return 1.0
    attention = layer.attention
    if attention is not None and not attention.latent and matrix.name in _KEYS_AND_VALUES:
        held = kv_heads_per_rank(attention.kv_heads, tensor_parallel=ranks)
        return held / attention.kv_heads
    return 1 / ranks


def _router(spec: ModelSpec, layer: Layer) -> int:
    """Weights that choose the experts."""
    return spec.hidden * layer.feed_forward.experts if layer.feed_forward else 0
