"""Solutions of notebook 14."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from math import ceil
from types import MappingProxyType


def mean_wait_s(rate_per_s: float, service_s: float) -> float:
    """Mean wait of the queue M/D/1: Poisson arrivals, equal service times, one seat.

    ``rho s / (2 (1 - rho))`` with ``rho = rate * s``; endless from rho = 1 on.
    """
    load = rate_per_s * service_s
    return load * service_s / (2 * (1 - load)) if load < 1 else float("inf")


def run_s(steps: int, first_s: float, growth_s: float) -> float:
    """Length of a run of steps, each longer than the one before by the same amount."""
    return steps * first_s + growth_s * steps * (steps - 1) / 2


def replicas_needed(rate_per_s: float, saturation_per_s: float, share: float) -> int:
    """The fewest replicas of which each carries at most this share of its saturation."""
    return max(1, ceil(rate_per_s / (saturation_per_s * share)))


def blocks_hit(seen: AbstractSet[int], block_ids: Sequence[int]) -> int:
    """Leading blocks that a cache has; the first miss ends the hit."""
    for count, key in enumerate(block_ids):
        if key not in seen:
            return count
    return len(block_ids)


def better_of_two(loads: Sequence[int], first: int, second: int) -> int:
    """The less loaded of two replicas; the first of equals."""
    return second if loads[second] < loads[first] else first


def energy_per_request_j(
    busy_w: float, idle_w: float, busy_s: float, up_s: float, requests: int
) -> float:
    """Energy of all replicas, busy and idle, over the requests that they served."""
    return (busy_w * busy_s + idle_w * (up_s - busy_s)) / requests


SOLUTIONS = MappingProxyType({
    "14.1": mean_wait_s,
    "14.2": run_s,
    "14.3": replicas_needed,
    "14.4": blocks_hit,
    "14.5": better_of_two,
    "14.6": energy_per_request_j,
})  # fmt: skip
