"""Tensor parallelism in closed form: how a model splits, and what each step must exchange.

Every layer's first products are split by column (heads, intermediate width), its last by row; the
partial sums of the last are added up by an all-reduce of ``tokens * hidden`` values. So a dense
layer has two, after attention and after the feed-forward part. The embedding split by vocabulary
has one more, and the logits are gathered. Source: Shoeybi et al., Megatron-LM, arXiv 1909.08053.
"""

from __future__ import annotations

from dataclasses import dataclass

from turbo_lab.core.errors import UsageError
from turbo_lab.models.layers import Attention, FeedForward, Layer
from turbo_lab.models.memory import kv_heads_per_rank
from turbo_lab.models.spec import ModelSpec
from turbo_lab.models.states import state_elements


@dataclass(frozen=True)
class HeadSplit:
    """Heads of one attention layer on one rank. ``copies``: ranks that hold the same KV head."""

    query_heads: int
    kv_heads: int
    copies: int


@dataclass(frozen=True)
class Exchange:
    """One kind of collective in a step: ``count`` of them, each over ``size_bytes`` (S)."""

    kind: str
    where: str
    count: int
    size_bytes: int

    @property
    def total_bytes(self) -> int:
        """Sum of the sizes."""
        return self.count * self.size_bytes

    def payload_bytes(self, *, ranks: int) -> float:
        """What each rank sends on a ring: ``2(n-1)/n S`` per all-reduce, ``(n-1)/n S`` per gather.

        Exact where the ranks divide the size; otherwise the mean over the ranks.
        """
        return self.total_bytes * (2 if self.kind == "all_reduce" else 1) * (ranks - 1) / ranks


def split_heads(attention: Attention, *, ranks: int) -> HeadSplit:
    """Heads of each rank; with fewer KV heads than ranks each head is held by several.

    An MLA layer has one latent that all ranks keep whole. Raises UsageError where heads do not
    divide.
    """
    if ranks < 1 or attention.query_heads % ranks:
        raise UsageError(
            f"{attention.query_heads} query heads cannot be split over {ranks} ranks; allowed: "
            f"{_divisors(attention.query_heads)}"
        )
    if attention.kind == "mla":
        return HeadSplit(attention.query_heads // ranks, 1, ranks)
    heads = kv_heads_per_rank(attention.kv_heads, tensor_parallel=ranks)
    return HeadSplit(attention.query_heads // ranks, heads, heads * ranks // attention.kv_heads)


def require_split(spec: ModelSpec, *, ranks: int) -> None:
    """Raise UsageError naming the first part of the model that ``ranks`` do not divide.

    The vocabulary is padded, so it always splits. (vLLM pads it to a multiple of 64 and no further,
    so there the ranks must divide that too.)
    """
    for index, layer in enumerate(spec.layers):
        try:
            if layer.attention:
                split_heads(layer.attention, ranks=ranks)
            if layer.state:
                state_elements(layer.state, tensor_parallel=ranks)
            for width in _widths(layer.feed_forward):
                if width % ranks:
                    raise UsageError(
                        f"the feed-forward width {width} cannot be split over {ranks} ranks; "
                        f"allowed: {_divisors(width)}"
                    )
        except UsageError as error:
            raise UsageError(f"{spec.name}, layer {index}: {error}") from error


def allowed_ranks(spec: ModelSpec, *, most: int = 64) -> list[int]:
    """Numbers of ranks, up to ``most``, that the model splits over."""
    found = []
    for ranks in range(1, most + 1):
        try:
            require_split(spec, ranks=ranks)
        except UsageError:
            continue
        found.append(ranks)
    return found


def all_reduces_per_layer(layer: Layer) -> int:
    """One per part whose output is a partial sum: attention or state, and feed-forward.

    Parts that run side by side (Falcon-H1) are added before one all-reduce. Experts, shared ones
    and the router together have one.
    """
    mixers = layer.attention is not None or layer.state is not None
    return int(mixers) + int(layer.feed_forward is not None)


def step_exchanges(
    spec: ModelSpec,
    *,
    ranks: int,
    tokens: int,
    sampled: int | None = None,
    element_bytes: int = 2,
    split_vocabulary: bool = True,
) -> tuple[Exchange, ...]:
    """What one step of ``tokens`` new tokens exchanges; nothing with one rank.

    ``sampled``: positions whose logits are needed (default: all tokens; in serving, one for each
    sequence). ``split_vocabulary``: embedding and output matrix are split too.

    Raises UsageError where the model does not split or a count is out of range.
    """
    asked = tokens if sampled is None else sampled
    if tokens < 1 or not 0 <= asked <= tokens or element_bytes < 1:
        raise UsageError(
            f"tokens {tokens}, sampled {asked}, element_bytes {element_bytes}; allowed: tokens and "
            "element_bytes from 1, sampled from 0 up to tokens"
        )
    require_split(spec, ranks=ranks)
    if ranks == 1:
        return ()
    size = tokens * spec.hidden * element_bytes
    count = sum(map(all_reduces_per_layer, spec.layers))
    found = [Exchange("all_reduce", "layers", count, size)]
    if split_vocabulary:
        padded = -(-spec.vocab // ranks) * ranks
        found.insert(0, Exchange("all_reduce", "embedding", 1, size))
        found.append(Exchange("all_gather", "logits", 1, asked * padded * element_bytes))
    return tuple(found)


def bytes_per_layer(spec: ModelSpec, *, tokens: int, element_bytes: int = 2) -> int:
    """Bytes that the all-reduces of one dense layer work on: ``2 * tokens * hidden * bytes``."""
    return 2 * tokens * spec.hidden * element_bytes


def _widths(part: FeedForward | None) -> list[int]:
    if part is None:
        return []
    return [w for w in (part.width, part.shared_width, part.parallel_width) if w]


def _divisors(value: int) -> str:
    return ", ".join(str(n) for n in range(1, value + 1) if value % n == 0)
