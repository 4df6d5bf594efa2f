"""What hosts and switches do with packets: computes only, no sockets and no clock of its own.

The same objects run over real datagrams (``switch``), over a lossy list (tests) and over simulated
links (``fabric``). Every call returns what is to be sent, as ``(node, packet)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from turbo_lab.turbo.aggregate import Aggregator, Outcome
from turbo_lab.turbo.packet import PART, REQUEST, RESULT, Packet, Stream
from turbo_lab.turbo.tables import TableMachine

Send = tuple[int, Packet]
Result = tuple[bytes, int]
Key = tuple[Stream, int]


class Node(Protocol):
    """One participant. ``results`` holds (values, gamma) by (stream, step), newest step only."""

    results: dict[Stream, tuple[int, Result]]
    repeated: int

    def offer(self, stream: Stream, step: int, *, values: bytes, gamma: int) -> list[Send]:
        """Enter this node's own part."""

    def receive(self, packet: Packet) -> list[Send]:
        """Take a packet."""

    def remind(self, stream: Stream, step: int) -> list[Send]:
        """What to send again for a part whose result is overdue."""


class TreeNode:
    """A node of a tree: merges the parts of its children and its own, passes them up.

    The root turns the merged part into the result, which goes back down the same edges. A child
    repeats its part until the result comes; a repeated part after the result is answered with it.
    """

    def __init__(
        self,
        number: int,
        *,
        parent: int | None,
        children: Sequence[int],
        contributes: bool,
        machine: TableMachine,
    ) -> None:
        self.number, self.parent, self.children = number, parent, tuple(children)
        own = (number,) if contributes else ()
        self._bits = {node: bit for bit, node in enumerate((*self.children, *own))}
        self.aggregator = Aggregator(machine, contributors=len(self._bits))
        self.results: dict[Stream, tuple[int, Result]] = {}
        self.repeated = 0
        self._up: dict[Stream, Packet] = {}

    def offer(self, stream: Stream, step: int, *, values: bytes, gamma: int) -> list[Send]:
        """See :class:`Node`."""
        return self._add(self.number, stream, step, values=values, gamma=gamma)

    def receive(self, packet: Packet) -> list[Send]:
        """See :class:`Node`; packets of nobody's or of another kind are dropped."""
        if packet.kind == RESULT and packet.node == self.parent:
            known = self.results.get(packet.stream)
            if known is not None and known[0] >= packet.step:
                return []
            return self._finish(packet.stream, packet.step, (packet.values, packet.gamma))
        if packet.kind == PART and packet.node in self.children:
            return self._add(
                packet.node, packet.stream, packet.step, values=packet.values, gamma=packet.gamma
            )
        return []

    def remind(self, stream: Stream, step: int) -> list[Send]:
        """See :class:`Node`."""
        up = self._up.get(stream)
        if self.parent is None or up is None or up.step != step:
            return []
        self.repeated += 1
        return [(self.parent, up)]

    def _add(
        self, node: int, stream: Stream, step: int, *, values: bytes, gamma: int
    ) -> list[Send]:
        found = self.aggregator.add(
            stream, step, contributor=self._bits[node], values=values, gamma=gamma
        )
        if found is Outcome.REPEATED and node != self.number:
            return self._again(node, stream, step)
        if found is not Outcome.COMPLETE:
            return []
        merged = self.aggregator.merged(stream, step)
        if self.parent is None:
            return self._finish(stream, step, merged)
        self._up[stream] = self._packet(PART, stream, step, merged)
        return [(self.parent, self._up[stream])]

    def _again(self, child: int, stream: Stream, step: int) -> list[Send]:
        """The result for a child that asks again.

        Without one a switch repeats its own part, as it has no timer; a host's timer does that.
        """
        known = self.results.get(stream)
        if known is None or known[0] != step:
            return [] if self.number in self._bits else self.remind(stream, step)
        self.repeated += 1
        return [(child, self._packet(RESULT, stream, step, known[1]))]

    def _finish(self, stream: Stream, step: int, result: Result) -> list[Send]:
        self.results[stream] = (step, result)
        packet = self._packet(RESULT, stream, step, result)
        return [(child, packet) for child in self.children]

    def _packet(self, kind: int, stream: Stream, step: int, content: Result) -> Packet:
        sequence, layer, head = stream
        return Packet(kind, self.number, layer, head, content[1], sequence, step, content[0])


class RingNode:
    """A node of a ring all-gather: passes every part on, and merges all of them itself.

    Parts are merged in the order of the nodes, so that all end with the same bits. Nobody answers
    in a ring; who misses a part asks the node before it.
    """

    def __init__(self, number: int, *, nodes: int, machine: TableMachine) -> None:
        self.number, self.nodes, self.machine = number, nodes, machine
        self.next, self.before = (number + 1) % nodes, (number - 1) % nodes
        self.results: dict[Stream, tuple[int, Result]] = {}
        self.repeated = 0
        self._parts: dict[Stream, dict[int, dict[int, Packet]]] = {}

    def offer(self, stream: Stream, step: int, *, values: bytes, gamma: int) -> list[Send]:
        """See :class:`Node`."""
        sequence, layer, head = stream
        return self.receive(Packet(PART, self.number, layer, head, gamma, sequence, step, values))

    def receive(self, packet: Packet) -> list[Send]:
        """See :class:`Node`."""
        stream, step, origin = packet.stream, packet.step, packet.node
        newest = self.results.get(stream)
        steps = self._parts.setdefault(stream, {})
        if packet.kind == REQUEST:
            part = steps.get(step, {}).get(origin)
            self.repeated += part is not None
            return [(self.next, part)] if part else []
        over = newest is not None and step <= newest[0]
        if packet.kind != PART or over or origin >= self.nodes:
            return []
        parts = steps.setdefault(step, {})
        if origin in parts:
            return []
        parts[origin] = packet
        if len(parts) == self.nodes:
            self._finish(stream, step)
        return [(self.next, packet)] if self.next != origin else []

    def remind(self, stream: Stream, step: int) -> list[Send]:
        """See :class:`Node`: one request per missing part."""
        parts = self._parts.get(stream, {}).get(step, {})
        missing = [n for n in range(self.nodes) if n not in parts]
        sequence, layer, head = stream
        self.repeated += len(missing)
        return [
            (self.before, Packet(REQUEST, origin, layer, head, 0, sequence, step))
            for origin in missing
        ]

    def _finish(self, stream: Stream, step: int) -> None:
        parts = [self._parts[stream][step][origin] for origin in range(self.nodes)]
        values = np.stack([np.frombuffer(p.values, dtype=np.int8) for p in parts]).astype(np.int16)
        merged, gamma = self.machine.merge(values, np.array([p.gamma for p in parts]))
        self.results[stream] = (step, (merged.astype(np.int8).tobytes(), int(gamma)))
        self._parts[stream] = {s: kept for s, kept in self._parts[stream].items() if s >= step}
