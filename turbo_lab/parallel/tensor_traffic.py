"""What greedy steps of a sharded model exchange, and what gloo makes of it on the wire."""

from __future__ import annotations

from collections.abc import Iterable

from turbo_lab.estimate.tensor_parallel import Exchange, step_exchanges
from turbo_lab.models.spec import ModelSpec
from turbo_lab.network.gloo import GlooTraffic, gloo_traffic
from turbo_lab.parallel.payload import argmax_bytes

CANDIDATE_ELEMENT_BYTES = 8  # a candidate is two float64


def greedy_exchanges(
    spec: ModelSpec, *, ranks: int, rows: int, tokens: int = 1, element_bytes: int = 4
) -> tuple[Exchange, ...]:
    """One greedy step of ``rows`` requests with ``tokens`` new tokens each (decode: 1).

    Instead of all logits one candidate per rank and row is gathered. Raises UsageError where the
    model does not split.
    """
    found = step_exchanges(
        spec, ranks=ranks, tokens=rows * tokens, sampled=0, element_bytes=element_bytes
    )
    best = Exchange("all_gather", "argmax", 1, argmax_bytes(rows=rows, ranks=ranks))
    return (*(one for one in found if one.where != "logits"), best) if found else ()


def generation_exchanges(
    spec: ModelSpec,
    *,
    ranks: int,
    rows: int,
    prompt_tokens: int,
    new_tokens: int,
    element_bytes: int = 4,
) -> tuple[Exchange, ...]:
    """One prefill and ``new_tokens - 1`` decode steps."""
    shape = {"ranks": ranks, "rows": rows, "element_bytes": element_bytes}
    prefill = greedy_exchanges(spec, tokens=prompt_tokens, **shape)
    return prefill + greedy_exchanges(spec, **shape) * (new_tokens - 1)


def total_bytes(exchanges: Iterable[Exchange], *, where: str | None = None) -> int:
    """Sum of the sizes S, of all exchanges or of those in one place."""
    return sum(one.total_bytes for one in exchanges if where in (None, one.where))


def wire_traffic(
    exchanges: Iterable[Exchange], *, ranks: int, rank: int, element_bytes: int = 4
) -> GlooTraffic:
    """What one rank's TCP connections carry for these exchanges, gloo's own messages included."""
    totals = [0, 0, 0, 0]
    for one in exchanges:
        wide = CANDIDATE_ELEMENT_BYTES if one.where == "argmax" else element_bytes
        kind = {"ranks": ranks, "rank": rank, "element_bytes": wide}
        each = gloo_traffic(one.kind, one.size_bytes, **kind)
        counts = (each.sent_bytes, each.sent_messages, each.received_bytes, each.received_messages)
        totals = [t + one.count * c for t, c in zip(totals, counts, strict=True)]
    return GlooTraffic(*totals)
