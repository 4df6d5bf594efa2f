"""What a collective costs on a network with one or two tiers (inside a host, between hosts).

A round of messages takes as long as its busiest link: a rank's own for messages inside its host,
its host's for those that leave it. A link carries what is sent at once one after the other, so a
round costs ``message cost of the sum of bytes``, in each direction. Rounds follow one another.

With one piece (alpha, bandwidth B) a ring of n ranks costs ``2(n-1) alpha + 2(n-1)/n S/B`` for an
all-reduce and half of it for all-gather, reduce-scatter and a pairwise all-to-all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from turbo_lab.core.errors import UsageError
from turbo_lab.network.algorithms import ALGORITHMS, Message, Round, chunk_bytes, rounds
from turbo_lab.network.busbw import (
    KINDS,
    algbw,
    busbw,
    busbw_factor,
    collective_kind,
    seconds_at,
)
from turbo_lab.network.piecewise import (
    HeldOut,
    MessageCost,
    Point,
    fit_message_cost,
    held_out_error,
    latency_bandwidth,
    through_ends,
)

__all__ = [
    "ALGORITHMS", "KINDS", "HeldOut", "Message", "MessageCost", "Network", "Point", "Round",
    "algbw", "best_algorithm", "busbw", "busbw_factor", "collective_s", "fit_message_cost",
    "held_out_error", "hierarchical_all_reduce", "latency_bandwidth", "message_point", "rounds",
    "rounds_s", "seconds_at", "through_ends",
]  # fmt: skip


@dataclass(frozen=True)
class Network:
    """Where the ranks are and what messages cost there.

    ``host_of[rank]``: number of the rank's host. ``inside``: messages within a host; ``between``:
    messages that leave one, over a link that all ranks of the host share. ``gap_s``: what each
    further message of a round costs a link beside its bytes (posting it, waking its receiver).
    """

    host_of: tuple[int, ...]
    between: MessageCost
    inside: MessageCost
    gap_s: float = 0.0

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.host_of)

    @staticmethod
    def flat(ranks: int, cost: MessageCost) -> Network:
        """One rank per host."""
        return Network(tuple(range(ranks)), cost, cost)

    @staticmethod
    def blocks(
        hosts: int, *, ranks_per_host: int, inside: MessageCost, between: MessageCost
    ) -> Network:
        """Consecutive ranks share a host, as launchers place them."""
        return Network(
            tuple(rank // ranks_per_host for rank in range(hosts * ranks_per_host)), between, inside
        )

    def placed(self, order: Sequence[int]) -> Network:
        """The same machines with rank i of the program where ``order[i]`` was."""
        if sorted(order) != list(range(self.ranks)):
            raise UsageError(f"{order} is no order of the ranks 0 to {self.ranks - 1}")
        return replace(self, host_of=tuple(self.host_of[place] for place in order))


def rounds_s(steps: Iterable[Round], network: Network) -> float:
    """Seconds of rounds of messages."""
    return sum(_round_s(step, network) for step in steps)


def collective_s(
    kind: str,
    total_bytes: int,
    *,
    network: Network,
    algorithm: str = "ring",
    element_bytes: int = 1,
) -> float:
    """Seconds of one collective over all ranks of the network (sizes as in ``busbw``)."""
    steps = rounds(
        kind, total_bytes, ranks=network.ranks, algorithm=algorithm, element_bytes=element_bytes
    )
    return rounds_s(steps, network)


def best_algorithm(kind: str, total_bytes: int, *, network: Network) -> tuple[str, float]:
    """The fastest algorithm of a kind at a size, and its seconds."""
    found = {
        name: collective_s(kind, total_bytes, network=network, algorithm=name)
        for name in ALGORITHMS[collective_kind(kind)]
    }
    name = min(found, key=found.__getitem__)
    return name, found[name]


def hierarchical_all_reduce(
    total_bytes: int, *, hosts: int, ranks_per_host: int, element_bytes: int = 1
) -> tuple[Round, ...]:
    """Rounds of an all-reduce that sends only a share of the data between hosts.

    Reduce-scatter inside each host, all-reduce of every chunk between the hosts, all-gather inside:
    each host sends ``2(h-1)/h S`` bytes. A flat ring over all n ranks sends ``2(n-1)/n S`` from
    each host, in 2(n-1) rounds that all wait for the slow tier.
    """
    if hosts < 2 or ranks_per_host < 2:
        raise UsageError(f"{hosts} hosts of {ranks_per_host} ranks; two tiers need 2 of each")
    first = rounds("reduce_scatter", total_bytes, ranks=ranks_per_host, element_bytes=element_bytes)
    own = chunk_bytes(total_bytes, ranks=ranks_per_host, element_bytes=element_bytes)
    middle = [
        rounds("all_reduce", own[local], ranks=hosts, element_bytes=element_bytes)
        for local in range(ranks_per_host)
    ]
    last = rounds("all_gather", total_bytes, ranks=ranks_per_host, element_bytes=element_bytes)
    local_to_global = [range(h * ranks_per_host, (h + 1) * ranks_per_host) for h in range(hosts)]
    across = [
        range(local, hosts * ranks_per_host, ranks_per_host) for local in range(ranks_per_host)
    ]
    return (
        *_side_by_side([first] * hosts, local_to_global),
        *_side_by_side(middle, across),
        *_side_by_side([last] * hosts, local_to_global),
    )


def message_point(
    kind: str, total_bytes: int, seconds: float, *, ranks: int, algorithm: str = "ring"
) -> Point:
    """A measured collective as one message of its rounds: (bytes per message, seconds per round).

    So operations of several sizes and rank counts become points of one curve, for
    ``fit_message_cost``. Exact where all rounds carry the same bytes.
    """
    steps = rounds(kind, total_bytes, ranks=ranks, algorithm=algorithm)
    if not steps:
        raise UsageError(f"{kind} of {total_bytes} bytes sends nothing")
    flat = Network.flat(ranks, MessageCost(0.0, (1.0,)))  # seconds become bytes
    return rounds_s(steps, flat) / len(steps), seconds / len(steps)


def _round_s(step: Round, network: Network) -> float:
    load: dict[tuple[str, bool, int], list[int]] = defaultdict(list)
    host = network.host_of
    for source, target, size in step:
        away = host[source] != host[target]
        load["out", away, host[source] if away else source].append(size)
        load["in", away, host[target] if away else target].append(size)
    return max(
        (network.between if away else network.inside).seconds(sum(sizes))
        + network.gap_s * (len(sizes) - 1)
        for (_, away, _), sizes in load.items()
    )


def _side_by_side(parts: Sequence[Sequence[Round]], names: Sequence[Sequence[int]]) -> list[Round]:
    """Several groups' rounds at the same time, each rank under its name in the whole."""
    longest = max(map(len, parts))
    return [
        tuple(
            Message(name[m.source], name[m.target], m.size_bytes)
            for part, name in zip(parts, names, strict=True) if i < len(part)
            for m in part[i]
        )
        for i in range(longest)
    ]  # fmt: skip
