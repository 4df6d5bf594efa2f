"""One job of a cluster: what is sent, over which strategy, with which injected faults.

The parts of the hosts are drawn from the job's seed, so that every process knows what all the
others send, and the result can be checked anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.turbo.merge import merge
from turbo_lab.turbo.packet import Stream, datagram_bytes
from turbo_lab.turbo.strategies import require
from turbo_lab.turbo.tables import TableMachine

MACHINE = TableMachine()
HELD_DATAGRAMS = 6  # a reordered datagram is passed at most so many later ones


@dataclass(frozen=True, kw_only=True)
class Job:
    """One decode step (or several) of a batch, merged over hosts by one strategy.

    ``layers`` are merged one after the other, as a model needs them; ``heads * sequences`` vectors
    of ``dim`` values per layer go at once. ``loss``, ``duplicate``, ``reorder``: probability that
    a received datagram is dropped, doubled, or held back. ``remind_s``: how long a host waits for
    a result before it repeats its part.
    """

    strategy: str
    hosts: int
    layers: int
    heads: int
    dim: int
    sequences: int = 1
    steps: int = 1
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    remind_s: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be sent."""
        require(self.strategy, self.hosts)
        datagram_bytes(self.dim)
        for name in ("layers", "heads", "sequences", "steps"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("loss", "duplicate", "reorder"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; allowed: 0 up to below 1")
        if self.remind_s <= 0:
            raise UsageError(f"remind_s is {self.remind_s}; it must be above 0 s")

    @property
    def layer_vectors(self) -> int:
        """Vectors that a layer merges: heads times sequences."""
        return self.heads * self.sequences

    @property
    def step_vectors(self) -> int:
        """Vectors of a step: over all layers."""
        return self.layers * self.layer_vectors

    def layer_streams(self, layer: int, *, first_sequence: int = 0) -> Iterator[Stream]:
        """What a layer merges, in the order in which it is sent."""
        for sequence in range(self.sequences):
            for head in range(self.heads):
                yield first_sequence + sequence, layer, head

    def parts(self, host: int, *, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Codes: values (layers, sequences, heads, dim), gamma (layers, sequences, heads)."""
        rng = np.random.default_rng([self.seed, step, host])
        shape = (self.layers, self.sequences, self.heads)
        values = rng.integers(-127, 128, (*shape, self.dim)).astype(np.int16)
        return values, rng.integers(100, 200, shape).astype(np.int16)

    def exact(self, *, step: int) -> np.ndarray:
        """The exact merge of all hosts' coded parts, in value codes, (layers * ... , dim)."""
        every = [self.parts(host, step=step) for host in range(self.hosts)]
        values = np.stack([v.reshape(-1, self.dim) for v, _ in every])
        gammas = np.stack([g.reshape(-1) for _, g in every]) * MACHINE.gamma_step
        return merge(values, gammas)[0]

    def in_order(self, *, step: int) -> np.ndarray:
        """The table machine's merge in the order of the hosts: what a ring gives bit for bit."""
        every = [self.parts(host, step=step) for host in range(self.hosts)]
        values = np.stack([v.reshape(-1, self.dim) for v, _ in every])
        return MACHINE.merge(values, np.stack([g.reshape(-1) for _, g in every]))[0]

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


class Faults:
    """Drops, doubles and holds back received datagrams, the same ones for the same seed."""

    def __init__(self, job: Job, *, node: int) -> None:
        self._job = job
        self._random = random.Random(f"{job.seed}-{node}")
        self._held: list[tuple[int, bytes]] = []
        self._count = self.lost = self.doubled = self.reordered = 0

    def pass_on(self, data: bytes) -> list[bytes]:
        """What arrives in place of one datagram, later ones included that were held back."""
        self._count += 1
        due = [old for at, old in self._held if at <= self._count]
        self._held = [(at, old) for at, old in self._held if at > self._count]
        if self._random.random() < self._job.loss:
            self.lost += 1
            return due
        if self._random.random() < self._job.reorder:
            self.reordered += 1
            later = self._count + self._random.randint(1, HELD_DATAGRAMS)
            self._held.append((later, data))
            return due
        if self._random.random() < self._job.duplicate:
            self.doubled += 1
            return [data, data, *due]
        return [data, *due]

    def flush(self) -> list[bytes]:
        """What was still held back, once nothing else comes."""
        due, self._held = [old for _, old in self._held], []
        return due
