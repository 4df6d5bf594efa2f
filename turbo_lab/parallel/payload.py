"""Payload of a forward pass that the closed forms of ``turbo_lab.estimate`` do not have.

``Comm`` counts the same numbers exactly. Tensor parallelism: ``estimate.tensor_parallel``.
"""

from __future__ import annotations

from turbo_lab.core.errors import UsageError
from turbo_lab.models.spec import ModelSpec

CANDIDATE_BYTES = 16  # a logit and a token id, as float64 both


def argmax_bytes(*, rows: int, ranks: int) -> int:
    """Gathered payload of a greedy choice without the logits: one candidate per row and rank."""
    if rows < 0 or ranks < 1:
        raise UsageError(f"rows {rows}, ranks {ranks}; allowed: 0 or more rows, 1 or more ranks")
    return ranks * rows * CANDIDATE_BYTES if ranks > 1 else 0


def pipeline_bytes(
    spec: ModelSpec, *, tokens: int, stages: int, element_bytes: int = 4, backward: bool = False
) -> int:
    """Payload over all boundaries of stages: ``(p-1) * tokens * H * element``; twice with backward.

    A pipeline sends the hidden state once per boundary, tensor parallelism twice per layer.
    """
    if stages < 1 or tokens < 0:
        raise UsageError(f"stages {stages}, tokens {tokens}; allowed: 1 or more, 0 or more")
    return (stages - 1) * tokens * spec.hidden * element_bytes * (2 if backward else 1)
