"""When moving a prefix is faster than computing it again: the least bandwidth for the hand-over."""

from __future__ import annotations

from turbo_lab.core.errors import UsageError

# Operations of one layer: a * p^2 * d (scores and values) + b * p * d^2 (projections, SwiGLU).
ATTENTION_OPS, LINEAR_OPS = 4, 22


def min_reuse_bandwidth_bytes_s(
    *,
    hidden: int,
    prefix_tokens: int,
    peak_flops: float,
    query_heads_per_kv_head: float,
    element_bytes: float = 2,
    attention_ops: float = ATTENTION_OPS,
    linear_ops: float = LINEAR_OPS,
) -> float:
    """Bandwidth above which loading a cached prefix beats recomputing it at full rate.

    Per layer the prefix holds ``2 p d s / gqa`` bytes and costs ``a p^2 d + b p d^2`` operations:

        ``B = 2 d s G / (gqa (a p d + b d^2))``

    with hidden size d, prefix p, element bytes s, G operations/s. The number of layers cancels.
    Source: Qin et al., Mooncake, arXiv 2407.00079 (a = 4, b = 22).

    Raises:
        UsageError: for a value that is not above 0.
    """
    values = {
        "hidden": hidden, "prefix_tokens": prefix_tokens, "peak_flops": peak_flops,
        "query_heads_per_kv_head": query_heads_per_kv_head, "element_bytes": element_bytes,
    }  # fmt: skip
    for name, value in values.items():
        if value <= 0:
            raise UsageError(f"{name} is {value}; it must be above 0")
    operations = attention_ops * prefix_tokens * hidden + linear_ops * hidden**2
    return 2 * hidden * element_bytes * peak_flops / (query_heads_per_kv_head * operations)


def attention_intensity(*, tokens: int, head_dim: int) -> float:
    """Operations per byte of attention over ``tokens`` with the scores written to memory (fp16).

    ``(4 N^2 D + 3 N^2) / (8 N^2 + 8 N D)``: 62 for N = 4,096 and D = 128.
    Source: Baseten, A guide to LLM inference and performance (counts a softmax as 3 per score).
    """
    if tokens < 1 or head_dim < 1:
        raise UsageError(f"tokens {tokens} and head_dim {head_dim} must be at least 1")
    n, d = float(tokens), float(head_dim)
    return (4 * n * n * d + 3 * n * n) / (8 * n * n + 8 * n * d)
