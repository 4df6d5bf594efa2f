"""How a collective is cut into messages: rounds of (sender, receiver, bytes), for every rank.

A round is what can happen at once; the next one needs what it brought. The bytes are the payload,
exact also where the ranks do not divide the size (``chunk_bytes``). Sizes follow ``busbw``'s
convention.

- ring: chunks go from neighbour to neighbour; fewest bytes on the busiest link, most rounds.
- tree: rounds double their reach, so there are about log2(n) per phase. Broadcast, reduce and
  all-reduce move the whole size in each; all-gather doubles its messages, reduce-scatter halves
  them, and one after the other they are the all-reduce by halving and doubling.
- direct: everybody sends to whom it concerns at once; one round per phase, many messages in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.network.busbw import collective_kind


class Message(NamedTuple):
    """One transfer of payload between two ranks."""

    source: int
    target: int
    size_bytes: int


Round = tuple[Message, ...]
ALGORITHMS: dict[str, tuple[str, ...]] = {
    "all_reduce": ("ring", "tree", "direct"),
    "all_gather": ("ring", "tree", "direct"),
    "reduce_scatter": ("ring", "tree", "direct"),
    "all_to_all": ("ring", "direct"),
    "broadcast": ("ring", "tree", "direct"),
    "reduce": ("ring", "tree", "direct"),
    "gather": ("direct",),
    "scatter": ("direct",),
    "sendrecv": ("direct",),
}


def chunk_bytes(total_bytes: int, *, ranks: int, element_bytes: int = 1) -> tuple[int, ...]:
    """One chunk per rank: equal ones of ``ceil(elements / ranks)``, the last ones shorter or empty.

    That is how ``torch.chunk`` cuts, and what a ring sends without padding.
    Raises UsageError where elements do not fill the size.
    """
    if ranks < 1 or element_bytes < 1 or total_bytes < 0 or total_bytes % element_bytes:
        raise UsageError(
            f"{total_bytes} bytes for {ranks} ranks in elements of {element_bytes} bytes: the size "
            "must be a whole number of elements, 0 or more, for at least one rank"
        )
    each = -(-total_bytes // element_bytes // ranks) * element_bytes
    return tuple(max(0, min(each, total_bytes - each * rank)) for rank in range(ranks))


def rounds(
    kind: str, total_bytes: int, *, ranks: int, algorithm: str = "ring", element_bytes: int = 1
) -> tuple[Round, ...]:
    """The messages of one operation, empty ones left out.

    Broadcast, reduce, gather and scatter have rank 0 as root.
    Raises UsageError for an unknown kind, or an algorithm that the kind does not have.
    """
    name = collective_kind(kind)
    if algorithm not in ALGORITHMS[name]:
        allowed = list(ALGORITHMS[name])
        raise UsageError(
            f"{name} has no algorithm {algorithm!r}.{did_you_mean(algorithm, allowed)}"
        )
    if ranks < 2:
        raise UsageError(f"{ranks} ranks; a collective needs at least 2")
    chunks = chunk_bytes(total_bytes, ranks=ranks, element_bytes=element_bytes)
    if name == "all_reduce" and algorithm != "tree":
        steps = [*_spread(chunks, algorithm, reduce=True), *_spread(chunks, algorithm)]
    elif name == "all_reduce":
        steps = [*_fan(total_bytes, ranks, algorithm, reduce=True),
                 *_fan(total_bytes, ranks, algorithm)]  # fmt: skip
    elif name in ("all_gather", "reduce_scatter"):
        steps = _spread(chunks, algorithm, reduce=name == "reduce_scatter")
    elif name in ("broadcast", "reduce"):
        steps = _fan(total_bytes, ranks, algorithm, reduce=name == "reduce")
    elif name == "all_to_all":
        shifts = _shifts(chunks)
        steps = shifts if algorithm == "ring" else [[m for step in shifts for m in step]]
    elif name == "sendrecv":
        steps = [[Message(r, (r + 1) % ranks, total_bytes) for r in range(ranks)]]
    else:
        out = [Message(0, r, chunks[r]) for r in range(1, ranks)]
        steps = [out if name == "scatter" else _reverse(out)]
    kept = (tuple(m for m in step if m.size_bytes) for step in steps)
    return tuple(step for step in kept if step)


def sent_bytes(steps: Iterable[Round], *, rank: int) -> int:
    """Payload that ``rank`` sends."""
    return sum(m.size_bytes for step in steps for m in step if m.source == rank)


def received_bytes(steps: Iterable[Round], *, rank: int) -> int:
    """Payload that ``rank`` receives."""
    return sum(m.size_bytes for step in steps for m in step if m.target == rank)


def sent_messages(steps: Iterable[Round], *, rank: int) -> int:
    """Messages that ``rank`` sends."""
    return sum(1 for step in steps for m in step if m.source == rank)


def _reverse(step: Iterable[Message]) -> list[Message]:
    return [Message(m.target, m.source, m.size_bytes) for m in step]


def _spread(
    chunks: tuple[int, ...], algorithm: str, *, reduce: bool = False
) -> list[list[Message]]:
    """Every rank's chunk to all (all-gather); backwards it is a reduce-scatter."""
    n = len(chunks)
    everyone = range(n)
    if algorithm == "ring":
        steps = [[Message(r, (r + 1) % n, chunks[(r - i) % n]) for r in everyone]
                 for i in range(n - 1)]  # fmt: skip
    elif algorithm == "direct":
        steps = [[Message(r, (r + i) % n, chunks[r]) for r in everyone for i in range(1, n)]]
    else:  # every round each rank passes on all that it holds, to twice the distance (Bruck)
        steps, held = [], 1
        while held < n:
            count = min(held, n - held)
            steps.append([
                Message(r, (r - held) % n, sum(chunks[(r + i) % n] for i in range(count)))
                for r in everyone
            ])  # fmt: skip
            held += count
    return [_reverse(step) for step in reversed(steps)] if reduce else steps


def _fan(
    total_bytes: int, ranks: int, algorithm: str, *, reduce: bool = False
) -> list[list[Message]]:
    """The whole size from rank 0 to all (broadcast); backwards it is a reduction to rank 0."""
    if algorithm == "direct":
        steps = [[Message(0, r, total_bytes) for r in range(1, ranks)]]
    elif algorithm == "ring":  # a chain
        steps = [[Message(r, r + 1, total_bytes)] for r in range(ranks - 1)]
    else:  # binomial: who has it passes it on, and their number doubles
        steps, have = [], 1
        while have < ranks:
            steps.append(
                [Message(r, r + have, total_bytes) for r in range(min(have, ranks - have))]
            )
            have *= 2
    return [_reverse(step) for step in reversed(steps)] if reduce else steps


def _shifts(chunks: tuple[int, ...]) -> list[list[Message]]:
    """Round i: every rank sends what is meant for the rank i further on."""
    n = len(chunks)
    return [[Message(r, (r + i) % n, chunks[(r + i) % n]) for r in range(n)] for i in range(1, n)]
