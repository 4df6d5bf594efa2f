"""Four ways to merge a step's parts over n hosts, as graphs, and what each link carries.

| strategy | graph | vectors on the busiest link, each direction |
|---|---|---|
| gather | all send to host 0, which merges and sends the result to all | n - 1 |
| ring | every part goes round, every host merges all | n - 1 |
| tree | hosts in a binary tree merge on the way up, the result goes down | 3 at most |
| in-network | all send to the switch, which merges and sends the result to all | 1 |

All of them pass on a packet as soon as they can, so that only the busiest link and the length of
the way count, and not who programmed the rounds.
"""

from __future__ import annotations

from collections import Counter

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.network.algorithms import Message, Round, received_bytes, sent_bytes
from turbo_lab.turbo.nodes import Node, RingNode, TreeNode
from turbo_lab.turbo.packet import datagram_bytes
from turbo_lab.turbo.tables import TableMachine

STRATEGIES = ("gather", "ring", "tree", "in-network")
MOST_HOSTS = 64


def require(strategy: str, hosts: int) -> None:
    """Refuse an unknown strategy or a number of hosts that makes no sense."""
    if strategy not in STRATEGIES:
        raise UsageError(
            f"There is no strategy {strategy!r}.{did_you_mean(strategy, list(STRATEGIES))}"
        )
    if not 2 <= hosts <= MOST_HOSTS:
        raise UsageError(f"{hosts} hosts; allowed: 2 to {MOST_HOSTS}")


def nodes_of(strategy: str, *, hosts: int) -> tuple[int, ...]:
    """Numbers of the nodes: the hosts, and number ``hosts`` for the switch where one merges."""
    require(strategy, hosts)
    return tuple(range(hosts + (strategy == "in-network")))


def parent_of(strategy: str, number: int, *, hosts: int) -> int | None:
    """The node that a node passes its merged part to; None for the root. Not for a ring."""
    require(strategy, hosts)
    if strategy == "gather":
        return 0 if number else None
    if strategy == "tree":
        return (number - 1) // 2 if number else None
    if strategy == "in-network":
        return hosts if number < hosts else None
    raise UsageError("a ring has no parents")


def build_node(strategy: str, number: int, *, hosts: int, machine: TableMachine) -> Node:
    """The node of that number."""
    everyone = nodes_of(strategy, hosts=hosts)
    if number not in everyone:
        raise UsageError(f"{strategy} over {hosts} hosts has no node {number}")
    if strategy == "ring":
        return RingNode(number, nodes=hosts, machine=machine)
    parent = parent_of(strategy, number, hosts=hosts)
    children = [n for n in everyone if parent_of(strategy, n, hosts=hosts) == number]
    return TreeNode(
        number, parent=parent, children=children, contributes=number < hosts, machine=machine
    )


def messages(strategy: str, *, hosts: int, size_bytes: int = 1) -> Round:
    """Every transfer of one merged vector of ``size_bytes``, between nodes."""
    everyone = nodes_of(strategy, hosts=hosts)
    if strategy == "ring":
        one = [Message(n, (n + 1) % hosts, size_bytes) for n in everyone]
        return tuple(one * (hosts - 1))
    pairs = [(n, parent_of(strategy, n, hosts=hosts)) for n in everyone]
    up = [Message(n, parent, size_bytes) for n, parent in pairs if parent is not None]
    return (*up, *(Message(m.target, m.source, size_bytes) for m in up))


def payload_bytes(
    strategy: str, *, hosts: int, node: int, vectors: int, dim: int
) -> tuple[int, int]:
    """(sent, received) bytes of datagrams of one node, nothing lost: the formula to the byte.

    ``vectors``: layers times heads times sequences of a step; a datagram has ``16 + dim`` bytes.
    """
    steps = [messages(strategy, hosts=hosts, size_bytes=vectors * datagram_bytes(dim))]
    return sent_bytes(steps, rank=node), received_bytes(steps, rank=node)


def busiest_load(strategy: str, *, hosts: int) -> int:
    """Vectors on the busiest host link in its busier direction; a switch's ports are the hosts'."""
    loads: Counter[tuple[str, int]] = Counter()
    for message in messages(strategy, hosts=hosts):
        loads["out", message.source] += 1
        loads["in", message.target] += 1
    return max(count for (_, node), count in loads.items() if node < hosts)


def links_per_hop(strategy: str) -> int:
    """Links that a hop crosses under one switch: 2 from host to host, 1 to a switch that merges."""
    require(strategy, 2)
    return 1 if strategy == "in-network" else 2


def longest_way(strategy: str, *, hosts: int) -> int:
    """Hops from the farthest part to the farthest host that needs it (see ``links_per_hop``)."""
    if strategy == "ring":
        return hosts - 1
    depth = 0
    for number in nodes_of(strategy, hosts=hosts):
        steps, node = 0, parent_of(strategy, number, hosts=hosts)
        while node is not None:
            steps, node = steps + 1, parent_of(strategy, node, hosts=hosts)
        depth = max(depth, steps)
    return 2 * depth
