"""A network that loses, doubles and reorders packets, driven by a seed: no clock, no sockets."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from turbo_lab.turbo.nodes import Key, Node, Send
from turbo_lab.turbo.packet import Stream, decode

DIM = 8


def own_parts(
    hosts: int, streams: Sequence[Stream], step: int, *, seed: int
) -> dict[int, dict[Stream, tuple[bytes, int]]]:
    """Random parts of every host, values over the whole range."""
    found: dict[int, dict[Stream, tuple[bytes, int]]] = {}
    for host in range(hosts):
        rng = np.random.default_rng([seed, step, host])
        found[host] = {
            stream: (rng.integers(-128, 128, DIM).astype(np.int8).tobytes(),
                     int(rng.integers(0, 230)))
            for stream in streams
        }  # fmt: skip
    return found


class LossyNet:
    """Delivers what nodes send, in a random order, some never and some twice."""

    def __init__(
        self, nodes: Mapping[int, Node], *, loss: float, double: float, reorder: bool, seed: int
    ) -> None:
        self.nodes, self.loss, self.double, self.reorder = nodes, loss, double, reorder
        self.random = random.Random(seed)
        self.flying: list[Send] = []
        self.lost = self.doubled = self.delivered = 0

    def send(self, sends: Sequence[Send]) -> None:
        for target, packet in sends:
            assert decode(packet.encode()) == packet
            if self.random.random() < self.loss:
                self.lost += 1
                continue
            copies = 1 + (self.random.random() < self.double)
            self.doubled += copies - 1
            self.flying += [(target, packet)] * copies

    def settle(self) -> None:
        """Deliver until nothing flies."""
        while self.flying:
            place = self.random.randrange(len(self.flying)) if self.reorder else 0
            target, packet = self.flying.pop(place)
            self.delivered += 1
            self.send(self.nodes[target].receive(packet))

    def step(
        self, parts: Mapping[int, Mapping[Stream, tuple[bytes, int]]], step: int, *, late: float = 0
    ) -> dict[int, dict[Stream, tuple[bytes, int]]]:
        """One step: all offer, reminders until all have all results. ``late``: share of packets of
        the step that stay in flight into the next one."""
        for host, own in parts.items():
            for stream, (values, gamma) in own.items():
                self.send(self.nodes[host].offer(stream, step, values=values, gamma=gamma))
        for _ in range(200):
            self.settle()
            missing = self._missing(parts, step)
            if not missing:
                break
            for host, (stream, _) in missing:
                self.send(self.nodes[host].remind(stream, step))
        else:
            raise AssertionError(f"no end after 200 reminders: {missing[:5]}")
        return {host: {s: self.nodes[host].results[s][1] for s in own}
                for host, own in parts.items()}  # fmt: skip

    def _missing(self, parts: Mapping[int, Mapping], step: int) -> list[tuple[int, Key]]:
        return [
            (host, (stream, step))
            for host, own in parts.items() for stream in own
            if self.nodes[host].results.get(stream, (-1, None))[0] != step
        ]  # fmt: skip
