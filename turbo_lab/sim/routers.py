"""Which replica gets the request: policies that look at loads, lengths, sessions or nothing.

A policy sees the replicas that take requests now and returns one of them. It may keep a state of
its own and draws from a generator of its own, so that a run is determined by its seed.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol

from turbo_lab.sim.job import Job
from turbo_lab.sim.replica import Replica


class Router(Protocol):
    """A policy. ``members`` is called before the first pick and whenever the replicas change."""

    def members(self, replicas: Sequence[Replica]) -> None:
        """These take requests from now on; at least one."""

    def pick(self, job: Job) -> Replica:
        """The replica for this request."""


class Members:
    """Base: keeps the list."""

    def __init__(self) -> None:
        self.replicas: Sequence[Replica] = ()

    def members(self, replicas: Sequence[Replica]) -> None:
        """These take requests from now on."""
        self.replicas = list(replicas)


class RoundRobin(Members):
    """One after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    def pick(self, job: Job) -> Replica:
        """The next in turn."""
        replicas = self.replicas
        self._next = (self._next + 1) % len(replicas)
        return replicas[self._next - 1]


class Random(Members):
    """Any, with equal chance."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._random = random.Random(seed).random

    def pick(self, job: Job) -> Replica:
        """One at random."""
        return self.replicas[int(self._random() * len(self.replicas))]


def least_loaded(replicas: Sequence[Replica]) -> Replica:
    """The one with the fewest requests; the first of equals."""
    best, load = replicas[0], replicas[0].load
    for replica in replicas:
        if replica.load < load:
            best, load = replica, replica.load
    return best


class LeastRequests(Members):
    """The replica with the fewest requests in it."""

    def pick(self, job: Job) -> Replica:
        """The least loaded."""
        return least_loaded(self.replicas)


class PowerOfTwo(Random):
    """The less loaded of two drawn at random.

    Source: Mitzenmacher, The power of two choices in randomized load balancing, 2001.
    """

    def pick(self, job: Job) -> Replica:
        """The better of two."""
        a, b = super().pick(job), super().pick(job)
        return b if b.load < a.load else a


class LengthAware(Members):
    """The replica with the least work before the request: prompt tokens still to be computed.

    Among equals (no prompts wait) the one whose caches hold the fewest tokens of decoding
    sequences, which is what its steps must read.
    """

    def pick(self, job: Job) -> Replica:
        """The least work in tokens."""
        return min(self.replicas, key=lambda r: (r.prompt_load, r.decoders.context, r.tag))


def stable_hash(text: str) -> int:
    """64 bits that do not change from process to process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def affinity_key(job: Job) -> str:
    """What binds a request to a replica: its session, else its first prompt block, else itself."""
    request = job.request
    if request.session:
        return request.session
    return f"b{request.block_ids[0]}" if request.block_ids else f"r{job.index}"


class ConsistentHash(Members):
    """The replica that owns the session's place on a ring; a change of members moves few."""

    POINTS = 64

    def members(self, replicas: Sequence[Replica]) -> None:
        """Put every member on the ring at places that depend on its number alone."""
        super().members(replicas)
        ring = sorted(
            (stable_hash(f"{r.tag}/{i}"), r.tag, r) for r in replicas for i in range(self.POINTS)
        )
        self._places = [place for place, _, _ in ring]
        self._owners = [owner for _, _, owner in ring]

    def pick(self, job: Job) -> Replica:
        """The owner of its place."""
        place = bisect.bisect(self._places, stable_hash(affinity_key(job)))
        return self._owners[place % len(self._owners)]


class PrefixAware(Members):
    """The replica that saw the longest part of this prompt, unless the loads are too uneven.

    As in cache-aware routing of SGLang and vLLM's routers: loads are uneven when the difference is
    above ``spread`` requests and the highest above ``ratio`` times the lowest; then, and when less
    than ``share`` of the prompt's blocks was seen, the least loaded one gets the request (of equals
    the one that saw the fewest blocks). What a replica saw is the router's own memory of
    ``remember`` blocks per replica, not its cache.
    """

    def __init__(
        self, *, share: float = 0.5, spread: int = 16, ratio: float = 1.5, remember: int = 100_000
    ) -> None:
        super().__init__()
        self.share, self.spread, self.ratio, self.remember = share, spread, ratio, remember
        self._seen: dict[int, dict[int, None]] = {}

    def members(self, replicas: Sequence[Replica]) -> None:
        """These take requests from now on; forget those that left."""
        super().members(replicas)
        tags = {r.tag for r in replicas}
        self._seen = {tag: self._seen.get(tag, {}) for tag in tags}

    def pick(self, job: Job) -> Replica:
        """The one that saw most, or the least loaded."""
        seen = self._seen
        low = min(self.replicas, key=lambda r: (r.load, len(seen[r.tag]), r.tag))
        chosen, ids = low, job.request.block_ids
        if ids:
            high = max(r.load for r in self.replicas)
            if high - low.load <= self.spread or high <= self.ratio * low.load:
                best = max(self.replicas, key=lambda r: (self._match(r, ids), -r.load, -r.tag))
                if self._match(best, ids) >= self.share * len(ids):
                    chosen = best
            self._remember(chosen, ids)
        return chosen

    def _match(self, replica: Replica, ids: tuple[int, ...]) -> int:
        seen = self._seen[replica.tag]
        for count, key in enumerate(ids):
            if key not in seen:
                return count
        return len(ids)

    def _remember(self, replica: Replica, ids: tuple[int, ...]) -> None:
        seen = self._seen[replica.tag]
        for key in ids:
            seen.pop(key, None)
            seen[key] = None
        if len(seen) > 2 * self.remember:  # Forget the oldest half at once: cheap on average.
            self._seen[replica.tag] = dict(list(seen.items())[-self.remember :])
