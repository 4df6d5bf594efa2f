"""Who holds what: heads, widths, vocabulary, layers and experts over ranks. Numbers only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.tensor_parallel import allowed_ranks, require_split, split_heads
from turbo_lab.models.spec import ModelSpec


@dataclass(frozen=True)
class TensorPart:
    """What one tensor-parallel rank holds of every layer, as ranges of whole heads and columns.

    With fewer KV heads than ranks several hold the same one. ``padded_vocab``: rows of the
    vocabulary on every rank, the missing ones of the last included.
    """

    rank: int
    ranks: int
    query_heads: range
    kv_heads: range
    width: range
    vocab: range
    padded_vocab: int


def even_range(count: int, *, parts: int, part: int) -> range:
    """The ``part``-th of ``parts`` equal pieces of ``range(count)``; must divide."""
    size = count // parts
    return range(part * size, (part + 1) * size)


def tensor_part(spec: ModelSpec, *, rank: int, ranks: int) -> TensorPart:
    """The share of one rank, by the rules of ``turbo_lab.estimate.tensor_parallel``.

    A vocabulary that does not divide is padded: the last rank then has fewer rows. Raises
    UsageError with the reason and the numbers of ranks that the whole model splits over.
    """
    if not 0 <= rank < ranks:
        raise UsageError(f"rank is {rank} of {ranks}; allowed: 0 to {ranks - 1}")
    try:
        require_split(spec, ranks=ranks)
    except UsageError as error:
        possible = ", ".join(map(str, allowed_ranks(spec)))
        raise UsageError(f"{error}. The whole model splits over: {possible} ranks.") from error
    heads = split_heads(spec.attention_layers[0], ranks=ranks)
    query = range(rank * heads.query_heads, (rank + 1) * heads.query_heads)
    group = spec.query_heads // spec.kv_heads
    feed_forward = spec.layers[0].feed_forward
    rows = -(-spec.vocab // ranks)
    return TensorPart(
        rank=rank,
        ranks=ranks,
        query_heads=query,
        kv_heads=range(query.start // group, (query.stop - 1) // group + 1),
        width=even_range(feed_forward.width if feed_forward else 0, parts=ranks, part=rank),
        vocab=range(min(rank * rows, spec.vocab), min((rank + 1) * rows, spec.vocab)),
        padded_vocab=rows,
    )


def split_layers(
    layers: int, *, stages: int, first_extra: float = 0.0, last_extra: float = 0.0
) -> list[range]:
    """Contiguous layers for each pipeline stage, so that the slowest stage is as fast as possible.

    ``first_extra``, ``last_extra``: work of the embedding and of the output head, in layers.
    Without them the split is even and later stages but the last get the remainder, as in vLLM.
    Raises UsageError when a stage would be empty.
    """
    if not 1 <= stages <= layers:
        raise UsageError(f"stages is {stages}; allowed: 1 to {layers}, one layer each at least.")
    if not (first_extra or last_extra):
        return _even_layers(layers, stages)
    # best[s][n]: smallest possible slowest stage when the first s stages hold n layers.
    best: list[dict[int, tuple[float, list[int]]]] = [{0: (0.0, [])}]
    for stage in range(stages):
        extra = first_extra * (stage == 0) + last_extra * (stage == stages - 1)
        row: dict[int, tuple[float, list[int]]] = {}
        for done, (slowest, counts) in best[-1].items():
            for take in range(1, layers - done - (stages - stage - 1) + 1):
                cost = max(slowest, take + extra)
                if done + take not in row or cost < row[done + take][0]:
                    row[done + take] = (cost, [*counts, take])
        best.append(row)
    return _ranges(best[-1][layers][1])


def _even_layers(layers: int, stages: int) -> list[range]:
    counts = [layers // stages] * stages
    for number in range(layers % stages):
        counts[-(number + 2)] += 1
    return _ranges(counts)


def _ranges(counts: Sequence[int]) -> list[range]:
    starts = [sum(counts[:number]) for number in range(len(counts))]
    return [range(start, start + count) for start, count in zip(starts, counts, strict=True)]


def head_in_layers(spec: ModelSpec) -> float:
    """Work of the output head, in decoder layers: ``vocab * H / matrices of one layer``.

    Matrix products only, so for contexts that are short against the width.
    """
    layer = spec.layers[0]
    width = layer.feed_forward.width * layer.feed_forward.matrices if layer.feed_forward else 0
    heads = 2 * (spec.query_heads + spec.kv_heads) * spec.head_dim_k
    return spec.vocab / (heads + width)


def expert_part(experts: int, *, rank: int, ranks: int) -> range:
    """The experts of one rank. Raises UsageError when they do not divide."""
    if experts % ranks:
        possible = [n for n in range(1, experts + 1) if experts % n == 0]
        raise UsageError(
            f"{experts} experts / {ranks} ranks = {experts / ranks:g}; allowed numbers of ranks: "
            f"{', '.join(map(str, possible))}."
        )
    return even_range(experts, parts=ranks, part=rank)
