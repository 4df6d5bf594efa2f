"""Which layers stand on which pipeline stage."""

from __future__ import annotations

from turbo_lab.core.errors import UsageError


def pipeline_stages(layers: int, *, stages: int) -> tuple[int, ...]:
    """The stage of each layer: even parts, the rest to the middle and late stages but the last.

    Source: vLLM's ``get_pp_indices``. Raises UsageError with more stages than layers.
    """
    if stages > layers:
        raise UsageError(f"pipeline_parallel is {stages}, but the model has {layers} layers.")
    sizes = [layers // stages] * stages
    for extra in range(2, layers % stages + 2):
        sizes[-extra] += 1
    return tuple(stage for stage, size in enumerate(sizes) for _ in range(size))
