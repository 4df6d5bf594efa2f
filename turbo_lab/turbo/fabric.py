"""A simulated network: the very nodes of the live switch, over links with a rate and a delay.

Packet by packet, store and forward, first come first served on each link; nothing is lost and
nobody needs time to think. It answers what no laptop can run: many hosts behind several switches.
All numbers from here are simulated.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from turbo_lab.core.errors import UsageError
from turbo_lab.turbo.nodes import Node, Send, TreeNode
from turbo_lab.turbo.packet import WIRE_BYTES, Packet, Stream
from turbo_lab.turbo.strategies import build_node, require
from turbo_lab.turbo.work import MACHINE, Job

Edge = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class LeafSpine:
    """Hosts under leaf switches, every leaf joined with every spine. All links are alike.

    Number of a leaf: ``hosts + i``, of a spine: ``hosts + leaves + i``. One leaf and no spine is a
    star. The artifact's simulation names 16 hosts, 4 leaves, 2 spines and links "100 1"; it does
    not state units, read here as 100 Gbit/s and 1 microsecond.
    """

    hosts: int = 16
    leaves: int = 4
    spines: int = 2
    rate_bytes_s: float = 100e9 / 8
    delay_s: float = 1e-6

    def __post_init__(self) -> None:
        """Refuse a network that does not connect."""
        if self.hosts % self.leaves or min(self.hosts, self.leaves) < 1:
            raise UsageError(f"{self.hosts} hosts do not divide over {self.leaves} leaves")
        if (self.leaves > 1) != (self.spines > 0):
            raise UsageError("several leaves need spines, and one leaf needs none")

    def leaf(self, host: int) -> int:
        """The leaf above a host."""
        return self.hosts + host // (self.hosts // self.leaves)

    def spine(self, stream: Stream) -> int:
        """The spine that a stream takes: streams are spread evenly, as ECMP would at best."""
        sequence, layer, head = stream
        return self.hosts + self.leaves + (sequence + layer + head) % self.spines

    def path(self, source: int, target: int, stream: Stream) -> tuple[int, ...]:
        """Nodes after ``source`` up to ``target``."""
        above = [self.leaf(n) if n < self.hosts else n for n in (source, target)]
        way = [source, above[0]]
        if above[0] != above[1] and max(above) < self.hosts + self.leaves:
            way.append(self.spine(stream))
        way += [above[1], target]
        return tuple(b for a, b in itertools.pairwise(way) if a != b)

    def aggregation(self, spine: int | None) -> dict[int, tuple[int | None, list[int]]]:
        """Parent and children of every node of the merging tree whose root is ``spine``."""
        below = self.hosts // self.leaves
        tree: dict[int, tuple[int | None, list[int]]] = {
            host: (self.leaf(host), []) for host in range(self.hosts)
        }
        leaves = range(self.hosts, self.hosts + self.leaves)
        for i, leaf in enumerate(leaves):
            tree[leaf] = (spine, list(range(i * below, (i + 1) * below)))
        if spine is not None:
            tree[spine] = (None, list(leaves))
        return tree


@dataclass
class SimulatedStep:
    """One simulated job. ``link_bytes``: frames by directed link, headers counted in."""

    seconds: float
    link_bytes: dict[Edge, int]
    results: dict[int, dict[Stream, tuple[bytes, int]]] = field(repr=False)

    def host_bytes(self, hosts: int) -> int:
        """Bytes on the busiest host link, in its busier direction."""
        return max(b for (a, c), b in self.link_bytes.items() if a < hosts or c < hosts)

    def core_bytes(self, hosts: int) -> int:
        """Bytes on all links between switches."""
        return sum(b for (a, c), b in self.link_bytes.items() if a >= hosts and c >= hosts)


def simulate(job: Job, network: LeafSpine) -> SimulatedStep:
    """Run one job over a simulated network. Faults of the job are not played.

    Raises UsageError for a network of another number of hosts.
    """
    require(job.strategy, job.hosts)
    if job.hosts != network.hosts:
        raise UsageError(f"the job has {job.hosts} hosts, the network {network.hosts}")
    return _Simulation(job, network).run()


class _Simulation:
    def __init__(self, job: Job, network: LeafSpine) -> None:
        self.job, self.network = job, network
        self.now_s = 0.0
        self.free_s: dict[Edge, float] = {}
        self.bytes: dict[Edge, int] = {}
        self.events: list[tuple[float, int, int, tuple[int, ...], Packet]] = []
        self.order = 0
        self.nodes = dict(self._nodes())
        self.at = dict.fromkeys(range(job.hosts), 0)  # the layer of each host
        self.waiting: dict[int, int] = {}
        self.kept: dict[int, dict[Stream, tuple[bytes, int]]] = {h: {} for h in range(job.hosts)}

    def _nodes(self) -> Iterator[tuple[tuple[int, int | None], Node]]:
        """Nodes by (number, spine of the stream); the spine matters only where switches merge."""
        job, network = self.job, self.network
        if job.strategy != "in-network":
            for host in range(job.hosts):
                yield (host, None), build_node(job.strategy, host, hosts=job.hosts, machine=MACHINE)
            return
        first = network.hosts + network.leaves
        spines: list[int | None] = [*range(first, first + network.spines)] or [None]
        for spine in spines:
            for number, (parent, children) in network.aggregation(spine).items():
                yield (number, spine), TreeNode(
                    number, parent=parent, children=children, contributes=number < job.hosts,
                    machine=MACHINE,
                )  # fmt: skip

    def _node(self, number: int, stream: Stream) -> Node:
        spine = None
        if self.job.strategy == "in-network" and self.network.spines:
            spine = self.network.spine(stream)
        return self.nodes[number, spine]

    def run(self) -> SimulatedStep:
        """Play all events."""
        parts = {h: self.job.parts(h, step=0) for h in range(self.job.hosts)}
        for host in parts:
            self._offer(host, parts)
        while self.events:
            self.now_s, _, here, rest, packet = heapq.heappop(self.events)
            if rest:
                self._hop(here, rest, packet)
                continue
            node = self._node(here, packet.stream)
            self._send(here, node.receive(packet))
            self._settle(here, node, packet.stream, parts)
        if any(layer < self.job.layers for layer in self.at.values()):
            raise UsageError("a simulated host did not get all results; this is a fault of ours")
        return SimulatedStep(self.now_s, self.bytes, self.kept)

    def _offer(self, host: int, parts: dict) -> None:
        layer = self.at[host]
        streams = list(self.job.layer_streams(layer))
        values, gammas = parts[host][0][layer], parts[host][1][layer]
        self.waiting[host] = len(streams)
        rows, tops = values.reshape(len(streams), -1), gammas.reshape(-1)
        for place, stream in enumerate(streams):
            node = self._node(host, stream)
            part = {"values": rows[place].astype("i1").tobytes(), "gamma": int(tops[place])}
            self._send(host, node.offer(stream, 0, **part))
            self._settle(host, node, stream, parts)

    def _settle(self, here: int, node: Node, stream: Stream, parts: dict) -> None:
        """Note a host's new result; with the last one of a layer it goes on."""
        if here not in self.kept or stream in self.kept[here] or stream not in node.results:
            return
        self.kept[here][stream] = node.results[stream][1]
        self.waiting[here] -= 1
        if not self.waiting[here]:
            self.at[here] += 1
            if self.at[here] < self.job.layers:
                self._offer(here, parts)

    def _send(self, source: int, sends: list[Send]) -> None:
        for target, packet in sends:
            self._hop(source, self.network.path(source, target, packet.stream), packet)

    def _hop(self, here: int, way: tuple[int, ...], packet: Packet) -> None:
        edge = (here, way[0])
        size = len(packet.encode()) + WIRE_BYTES
        start_s = max(self.now_s, self.free_s.get(edge, 0.0))
        self.free_s[edge] = start_s + size / self.network.rate_bytes_s
        self.bytes[edge] = self.bytes.get(edge, 0) + size
        self.order += 1
        heapq.heappush(
            self.events,
            (self.free_s[edge] + self.network.delay_s, self.order, way[0], way[1:], packet),
        )
