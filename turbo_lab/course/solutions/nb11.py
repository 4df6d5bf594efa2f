"""Solutions of notebook 11."""

from __future__ import annotations

from math import log2
from types import MappingProxyType


def bus_bandwidth(kind: str, size_bytes: float, seconds: float, ranks: int) -> float:
    """Size over time, times the share of the size that the busiest link carries.

    An all-reduce moves everything twice (reduce, then spread), less what each rank has already.
    """
    factors = {
        "all_reduce": 2 * (ranks - 1) / ranks,
        "all_gather": (ranks - 1) / ranks,
        "all_to_all": (ranks - 1) / ranks,
        "broadcast": 1.0,
    }
    return size_bytes / seconds * factors[kind]


def ring_all_reduce_s(size_bytes: float, ranks: int, alpha_s: float, rate_bytes_s: float) -> float:
    """2(n-1) rounds, each with a message of one n-th of the data."""
    return 2 * (ranks - 1) * (alpha_s + size_bytes / ranks / rate_bytes_s)


def ring_beats_tree_from(ranks: int, alpha_s: float, rate_bytes_s: float) -> float:
    """Size from which the ring is faster than a tree of 2 log2(n) rounds over the whole size.

    2(n-1)(a + S/nB) = 2 log2(n) (a + S/B), solved for S. With two ranks both have two rounds, and
    the ring's are half as long.
    """
    rounds = log2(ranks)
    return (ranks - 1 - rounds) * alpha_s * rate_bytes_s / (rounds - (ranks - 1) / ranks)


def compression_break_even(plain_bytes: float, coded_bytes: float, coding_s: float) -> float:
    """Saved bytes over the time of coding; a code that saves nothing never pays."""
    return max(0.0, plain_bytes - coded_bytes) / coding_s


def payload_share(mtu_bytes: int) -> float:
    """Payload of a full segment over the frame that Linux counts.

    The MTU holds 20 (IP) + 20 (TCP) + 12 (time stamps) bytes of headers; Ethernet's 14 come on top.
    """
    return (mtu_bytes - 52) / (mtu_bytes + 14)


def split_speedup(
    alone_s: float, ranks: int, all_reduces: int, size_bytes: float, alpha_s: float,
    rate_bytes_s: float,
) -> float:  # fmt: skip
    """Time on one device over time on n: the work is divided, the all-reduces come on top."""
    each_s = ring_all_reduce_s(size_bytes, ranks, alpha_s, rate_bytes_s)
    return alone_s / (alone_s / ranks + all_reduces * each_s)


SOLUTIONS = MappingProxyType({
    "11.1": bus_bandwidth,
    "11.2": ring_all_reduce_s,
    "11.3": ring_beats_tree_from,
    "11.4": compression_break_even,
    "11.5": payload_share,
    "11.6": split_speedup,
})  # fmt: skip
