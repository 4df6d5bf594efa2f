"""What gloo puts on the wire: torch's CPU backend, message by message.

Every message has a header of 48 bytes; before it the sender announces it and the receiver says that
it is ready, 48 bytes each. Payload is never padded: the ring of an all-reduce cuts the buffer into
segments of whole elements, at least two per rank and at most 1 MiB each, and the last rank's may be
short or missing. Source: facebookincubator/gloo (commit 70dc360), gloo/{allreduce,allgather,
alltoall,broadcast}.cc and gloo/transport/tcp/pair.{h,cc}.
"""

from __future__ import annotations

from dataclasses import dataclass

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.core.units import MiB

PREAMBLE_BYTES = 48
MAX_SEGMENT_BYTES = MiB
KINDS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "sendrecv")


@dataclass(frozen=True)
class GlooTraffic:
    """What one rank sends and receives in one operation."""

    sent_bytes: int
    sent_messages: int
    received_bytes: int
    received_messages: int

    @property
    def stream_sent_bytes(self) -> int:
        """Bytes into TCP: payload, announcement and header of what is sent, ready of the rest."""
        return (
            self.sent_bytes
            + 2 * PREAMBLE_BYTES * self.sent_messages
            + PREAMBLE_BYTES * self.received_messages
        )

    @property
    def stream_received_bytes(self) -> int:
        """The same of the peers."""
        return (
            self.received_bytes
            + 2 * PREAMBLE_BYTES * self.received_messages
            + PREAMBLE_BYTES * self.sent_messages
        )


def gloo_traffic(
    kind: str, total_bytes: int, *, ranks: int, rank: int, element_bytes: int = 4
) -> GlooTraffic:
    """Traffic of one rank. ``total_bytes`` is S as nccl-tests has it (the gathered size).

    ``reduce_scatter`` is an all-reduce in torch's gloo backend. Broadcast has rank 0 as root;
    sendrecv sends to the next rank. All-gather and all-to-all need a size that the ranks divide.

    Raises UsageError for an unknown kind and for a size that gloo refuses.
    """
    if kind not in KINDS:
        raise UsageError(f"There is no gloo traffic of {kind!r}.{did_you_mean(kind, list(KINDS))}")
    if not 0 <= rank < ranks or ranks < 2:
        raise UsageError(f"rank {rank} of {ranks}; a collective needs at least 2 ranks")
    if kind in ("all_reduce", "reduce_scatter"):
        return _ring_all_reduce(total_bytes, ranks, rank, element_bytes)
    if kind == "broadcast":
        return _broadcast(total_bytes, ranks, rank)
    if kind == "sendrecv":
        return GlooTraffic(total_bytes, 1, total_bytes, 1)
    if total_bytes % (ranks * element_bytes):
        raise UsageError(
            f"{total_bytes} bytes in elements of {element_bytes} do not divide by {ranks} ranks; "
            f"gloo's {kind} needs equal parts: pad to a multiple of {ranks * element_bytes} bytes"
        )
    part = total_bytes // ranks
    messages = (ranks - 1) * (2 if kind == "all_gather" else 1)  # an all-gather sends halves
    payload = (ranks - 1) * part
    return GlooTraffic(payload, messages, payload, messages)


def all_reduce_segments(
    total_bytes: int, *, ranks: int, element_bytes: int = 4
) -> tuple[tuple[int, ...], ...]:
    """Bytes of every segment, by rank whose chunk it is part of; empty ones left out."""
    if element_bytes < 1 or total_bytes < 0 or total_bytes % element_bytes:
        raise UsageError(
            f"{total_bytes} bytes are no whole number of {element_bytes}-byte elements"
        )
    most = element_bytes * max(1, MAX_SEGMENT_BYTES // element_bytes)
    count = _round_up(max(-(-total_bytes // most), 2 * ranks), ranks)
    each = _round_up(-(-total_bytes // count), element_bytes)
    sizes = [max(0, min(each, total_bytes - each * i)) for i in range(count)]
    per_rank = count // ranks
    return tuple(
        tuple(size for size in sizes[r * per_rank : (r + 1) * per_rank] if size)
        for r in range(ranks)
    )


def _ring_all_reduce(total_bytes: int, ranks: int, rank: int, element_bytes: int) -> GlooTraffic:
    """Reduce-scatter sends all chunks but the own one, all-gather all but the one before it."""
    chunks = all_reduce_segments(total_bytes, ranks=ranks, element_bytes=element_bytes)
    nexts = (rank + 1) % ranks  # chunks travel from each rank to the one before it
    sent = [c for i, c in enumerate(chunks) if i != rank]
    sent += [c for i, c in enumerate(chunks) if i != (rank - 1) % ranks]
    got = [c for i, c in enumerate(chunks) if i != nexts]
    got += [c for i, c in enumerate(chunks) if i != (nexts - 1) % ranks]
    return GlooTraffic(
        sum(map(sum, sent)), sum(map(len, sent)), sum(map(sum, got)), sum(map(len, got))
    )


def _broadcast(total_bytes: int, ranks: int, rank: int) -> GlooTraffic:
    """A binomial tree: each round the ranks that have the data double."""
    reach, sends = 1, 0
    while reach < ranks:
        sends += rank < reach and rank + reach < ranks
        reach *= 2
    gets = int(rank > 0)
    return GlooTraffic(total_bytes * sends, sends, total_bytes * gets, gets)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
