"""Operations and bytes of the single parts of a decoder layer, each run as a kernel of its own.

This is the accounting of roofline tables: every kernel reads its inputs from memory and writes its
output back (nothing fused). A whole step under ideal fusion is in ``turbo_lab.estimate.step``.

Letters: T new tokens per sequence, S context tokens, B sequences, H heads, D head dimension.
Conventions of the small operations (per element): softmax 5 (max, subtract, exp, sum, divide),
norm 7, residual addition 1, gated activation 2; as in LLM-Viewer (Yuan et al., arXiv 2402.16363).
"""

from __future__ import annotations

from dataclasses import dataclass

from turbo_lab.core.errors import UsageError

SOFTMAX_OPS, NORM_OPS, ADD_OPS, ACTIVATION_OPS = 5, 7, 1, 2


@dataclass(frozen=True)
class Operation:
    """Work of one kernel. Bytes are split by what they carry; ``flops`` counts a multiply-add as 2.

    ``cache_bytes``: keys and values read or written.
    """

    name: str
    flops: float
    weight_bytes: float = 0.0
    activation_bytes: float = 0.0
    cache_bytes: float = 0.0

    @property
    def bytes_moved(self) -> float:
        """All bytes."""
        return self.weight_bytes + self.activation_bytes + self.cache_bytes

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes_moved


def linear(
    name: str,
    *,
    inputs: int,
    outputs: int,
    tokens: int,
    weight_bytes: float = 2,
    activation_bytes: float = 2,
    cache_bytes: float | None = None,
) -> Operation:
    """A product of ``tokens x inputs`` activations with ``inputs x outputs`` weights.

    ``flops = 2 * tokens * inputs * outputs``. ``weight_bytes`` and ``activation_bytes`` are bytes
    of one element; ``cache_bytes``: the output goes to the KV cache with that many bytes (k and v
    projections). Raises UsageError for a size below 1.
    """
    _positive(inputs=inputs, outputs=outputs, tokens=tokens)
    stored = tokens * outputs
    return Operation(
        name,
        flops=2.0 * tokens * inputs * outputs,
        weight_bytes=inputs * outputs * weight_bytes,
        activation_bytes=(tokens * inputs + (0 if cache_bytes else stored)) * activation_bytes,
        cache_bytes=stored * (cache_bytes or 0),
    )


@dataclass(frozen=True)
class AttentionShape:
    """The sizes of one attention layer at work.

    ``new_tokens`` (T) is the context itself in a prefill and 1 in decode.
    """

    query_heads: int
    kv_heads: int
    head_dim: int
    new_tokens: int
    context_tokens: int
    batch: int = 1
    activation_bytes: float = 2
    kv_bytes: float = 2

    def __post_init__(self) -> None:
        """Refuse sizes below 1 and more new tokens than context."""
        _positive(
            query_heads=self.query_heads, kv_heads=self.kv_heads, head_dim=self.head_dim,
            new_tokens=self.new_tokens, context_tokens=self.context_tokens, batch=self.batch,
        )  # fmt: skip
        if self.new_tokens > self.context_tokens:
            raise UsageError(
                f"new_tokens is {self.new_tokens}, more than context_tokens {self.context_tokens} "
                "(the context includes the new tokens)"
            )

    @property
    def query_elements(self) -> int:
        """Elements of the queries (and of the output)."""
        return self.batch * self.new_tokens * self.query_heads * self.head_dim

    @property
    def score_elements(self) -> int:
        """Elements of the full score matrix, causal half not saved."""
        return self.batch * self.query_heads * self.new_tokens * self.context_tokens

    @property
    def one_side_bytes(self) -> float:
        """Bytes of all keys (or all values)."""
        return self.batch * self.context_tokens * self.kv_heads * self.head_dim * self.kv_bytes


def scores(shape: AttentionShape) -> Operation:
    """``Q K^T``: reads queries and keys, writes the scores. ``2 B H T S D`` operations."""
    moved = (shape.query_elements + shape.score_elements) * shape.activation_bytes
    flops = 2.0 * shape.score_elements * shape.head_dim
    return Operation("qk", flops, activation_bytes=moved, cache_bytes=shape.one_side_bytes)


def values(shape: AttentionShape) -> Operation:
    """Probabilities times V: reads scores and values, writes the output."""
    moved = (shape.query_elements + shape.score_elements) * shape.activation_bytes
    flops = 2.0 * shape.score_elements * shape.head_dim
    return Operation("sv", flops, activation_bytes=moved, cache_bytes=shape.one_side_bytes)


def softmax(shape: AttentionShape) -> Operation:
    """Softmax of the scores: reads and writes them once."""
    moved = 2 * shape.score_elements * shape.activation_bytes
    return Operation("softmax", float(SOFTMAX_OPS * shape.score_elements), activation_bytes=moved)


def online_attention(shape: AttentionShape, *, block_rows: int = 128) -> Operation:
    """Attention with online softmax: the scores never leave the chip.

    Keys and values are read once per block of ``block_rows`` query rows:
    ``ceil(T / block_rows) * (K + V)``; queries are read and the output is written once, with one
    log-sum-exp (fp32) per row and head. Source: Dao et al., FlashAttention, arXiv 2205.14135.
    """
    _positive(block_rows=block_rows)
    passes = -(-shape.new_tokens // block_rows)
    rows = shape.batch * shape.query_heads * shape.new_tokens
    flops = shape.score_elements * (4.0 * shape.head_dim + SOFTMAX_OPS)
    moved = 2 * shape.query_elements * shape.activation_bytes + 4 * rows
    return Operation("online attention", flops, activation_bytes=moved,
                     cache_bytes=passes * 2 * shape.one_side_bytes)  # fmt: skip


def elementwise(name: str, *, width: int, tokens: int, activation_bytes: float = 2) -> Operation:
    """A small operation over ``tokens x width``: ``norm``, ``add`` or ``activation``.

    The gated activation reads two inputs; a residual addition is counted with one read, because
    the other operand is still in registers (the published tables count so). Raises UsageError.
    """
    _positive(width=width, tokens=tokens)
    rules = {"norm": (NORM_OPS, 2), "add": (ADD_OPS, 2), "activation": (ACTIVATION_OPS, 3)}
    if name not in rules:
        raise UsageError(f"elementwise operation is {name!r}; allowed: {', '.join(rules)}")
    ops, accesses = rules[name]
    elements = tokens * width
    return Operation(name, float(ops * elements),
                     activation_bytes=accesses * elements * activation_bytes)  # fmt: skip


def _positive(**sizes: int) -> None:
    for name, value in sizes.items():
        if value < 1:
            raise UsageError(f"{name} is {value}; it must be at least 1")
