"""Routers over separate pools of replicas, and all routers by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.sim.job import Job
from turbo_lab.sim.replica import Replica
from turbo_lab.sim.routers import (
    ConsistentHash,
    LeastRequests,
    LengthAware,
    PowerOfTwo,
    PrefixAware,
    Random,
    RoundRobin,
    Router,
)


class SeparatePools:
    """Requests of two kinds on replicas of their own, the least loaded of each.

    ``is_first``: whether a request belongs to the first pool, which has ``share`` of the replicas
    (at least one each; a single replica serves both).
    """

    def __init__(self, is_first: Callable[[Job], bool], *, share: float) -> None:
        if not 0 < share < 1:
            raise UsageError(f"the first pool's share is {share}; allowed: above 0, below 1")
        self._is_first, self._share = is_first, share
        self._pools: tuple[Router, Router] = (LeastRequests(), LeastRequests())

    def members(self, replicas: Sequence[Replica]) -> None:
        """Divide the replicas by their order."""
        if len(replicas) == 1:
            first = second = replicas
        else:
            count = min(max(round(self._share * len(replicas)), 1), len(replicas) - 1)
            first, second = replicas[:count], replicas[count:]
        self._pools[0].members(first)
        self._pools[1].members(second)

    def pick(self, job: Job) -> Replica:
        """The least loaded of its pool."""
        return self._pools[0 if self._is_first(job) else 1].pick(job)


def priority_pools(*, share: float = 0.5) -> SeparatePools:
    """Priority 0 and below (more important) on the first pool, the rest on the second."""
    return SeparatePools(lambda job: job.request.priority <= 0, share=share)


def length_pools(*, longest_short: int = 2048, share: float = 0.5) -> SeparatePools:
    """Prompts up to ``longest_short`` tokens on the first pool, longer ones on the second."""
    return SeparatePools(lambda job: job.prompt <= longest_short, share=share)


ROUTERS: dict[str, Callable[[int], Router]] = {
    "round-robin": lambda seed: RoundRobin(),
    "random": Random,
    "least-requests": lambda seed: LeastRequests(),
    "power-of-two": PowerOfTwo,
    "length-aware": lambda seed: LengthAware(),
    "length-pools": lambda seed: length_pools(),
    "prefix-aware": lambda seed: PrefixAware(),
    "consistent-hash": lambda seed: ConsistentHash(),
    "priority": lambda seed: priority_pools(),
}


def make_router(name: str, *, seed: int = 0) -> Router:
    """A fresh router by name. Raises UsageError."""
    if name not in ROUTERS:
        raise UsageError(f"router {name!r}." + did_you_mean(name, [*ROUTERS]))
    return ROUTERS[name](seed)
