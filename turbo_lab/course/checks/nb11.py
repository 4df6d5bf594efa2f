"""Exercises of notebook 11: when does the network become the bottleneck?"""

from __future__ import annotations

from math import log2
from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case

GB = 1e9


def _more_ranks_never_need_less(ring: Any) -> str | None:
    """The time of a ring grows with its ranks."""
    times = [ring(1e6, n, 1e-5, GB) for n in (2, 3, 4, 8)]
    return None if times == sorted(times) else f"2, 3, 4, 8 ranks gave {times}: it must grow."


def _large_messages_reach_the_link(ring: Any) -> str | None:
    """Bus bandwidth of a huge all-reduce is the link's rate."""
    found = 1.5 * 1e12 / ring(1e12, 4, 1e-5, GB)
    return None if abs(found / GB - 1) < 0.01 else f"1 TB over 4 ranks reached {found:.3g} bytes/s."


def _ring(size: float, ranks: int, alpha: float, rate: float) -> float:
    return 2 * (ranks - 1) * (alpha + size / ranks / rate)


def _factor(kind: str, ranks: int) -> float:
    whole = {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0}
    return whole.get(kind, (ranks - 1) / ranks)


EXERCISES = (
    Exercise(
        id="11.1",
        task="Bus bandwidth as nccl-tests has it, for all_reduce, all_gather, all_to_all, "
        "broadcast: bus_bandwidth(kind, size_bytes, seconds, ranks)",
        cases=(
            case("all_reduce", 1e9, 1.0, 2, gives=1e9, hint="With two ranks the factor is 1."),
            case("all_reduce", 1e9, 1.0, 8, gives=1.75e9),
            case("all_gather", 1e9, 0.5, 4, gives=1.5e9, hint="S is the gathered size."),
            case("all_to_all", 4e6, 0.002, 4, gives=1.5e9),
            case("broadcast", 1e9, 0.5, 4, gives=2e9),
        ),
        mistakes=(
            Mistake("That is algbw, without the factor.", lambda kind, s, t, n: s / t),
            Mistake(
                "Only an all-reduce moves its data twice.",
                lambda kind, s, t, n: s / t * 2 * (n - 1) / n,
            ),
            Mistake(
                "An all-reduce moves its data twice, and a broadcast all of it.",
                lambda kind, s, t, n: s / t * (n - 1) / n,
            ),
            Mistake(
                "Bandwidth is size over time, not time over size.",
                lambda kind, s, t, n: t / s * _factor(kind, n),
            ),
        ),
    ),
    Exercise(
        id="11.2",
        task="Seconds of a ring all-reduce: ring_s(size_bytes, ranks, alpha_s, rate_bytes_s)",
        cases=(
            case(0, 4, 1e-5, GB, gives=6e-5, hint="2(n-1) messages, even of nothing."),
            case(4e9, 4, 0.0, GB, gives=6.0, hint="2(n-1)/n S bytes pass each link."),
            case(1e6, 2, 1e-4, GB, gives=2 * (1e-4 + 5e-4)),
        ),
        properties=(_more_ranks_never_need_less, _large_messages_reach_the_link),
        mistakes=(
            Mistake(
                "Every round has its latency, not the operation once.",
                lambda s, n, a, b: a + 2 * (n - 1) / n * s / b,
            ),
            Mistake(
                "A message of a ring is one n-th of the data.",
                lambda s, n, a, b: 2 * (n - 1) * (a + s / b),
            ),
            Mistake(
                "n-1 rounds to reduce, n-1 more to spread.",
                lambda s, n, a, b: _ring(s, n, a, b) / 2,
            ),
        ),
    ),
    Exercise(
        id="11.3",
        task="The size from which a ring beats a tree of 2 log2(n) rounds over the whole size "
        "(n a power of two): ring_beats_tree_from(ranks, alpha_s, rate_bytes_s)",
        cases=(
            case(2, 1e-5, GB, gives=0.0, hint="Two ranks: as many rounds, half the bytes."),
            case(4, 1e-5, GB, gives=8000.0),
            case(8, 1e-5, GB, gives=4 / (3 - 7 / 8) * 1e4),
            case(64, 2e-5, 1e8, gives=(63 - 6) * 2e-5 * 1e8 / (6 - 63 / 64)),
        ),
        mistakes=(
            Mistake(
                "The tree's messages are of the whole size, the ring's of one n-th.",
                lambda n, a, b: (n - 1 - log2(n)) * a * b,
            ),
            Mistake(
                "That is alpha times bandwidth alone; it must grow with n.", lambda n, a, b: a * b
            ),
            Mistake(
                "Latency times bandwidth: the rate multiplies.",
                lambda n, a, b: (n - 1 - log2(n)) * a / b / (log2(n) - (n - 1) / n),
            ),
        ),
    ),
    Exercise(
        id="11.4",
        task="The link rate at which a code neither gains nor loses, 0 where it saves nothing: "
        "break_even(plain_bytes, coded_bytes, coding_s)",
        cases=(
            case(4e6, 1e6, 0.01, gives=3e8),
            case(4e6, 2e6, 0.001, gives=2e9),
            case(4e6, 4e6, 0.001, gives=0.0),
            case(4e6, 8e6, 0.001, gives=0.0, hint="A code may also be longer than the data."),
        ),
        mistakes=(
            Mistake("Only the saved bytes count.", lambda p, c, t: p / t),
            Mistake("The coded bytes still have to be sent.", lambda p, c, t: c / t),
            Mistake(
                "A rate is never negative: such a code never pays.", lambda p, c, t: (p - c) / t
            ),
        ),
    ),
    Exercise(
        id="11.5",
        task="Share of a link's bytes that is TCP payload, from the MTU (time stamps on, Ethernet "
        "header counted): payload_share(mtu_bytes)",
        cases=(
            case(1500, gives=1448 / 1514),
            case(9000, gives=8948 / 9014),
            case(1400, gives=1348 / 1414),
        ),
        mistakes=(
            Mistake("Ethernet's header is outside the MTU.", lambda mtu: (mtu - 52) / mtu),
            Mistake(
                "Time stamps take 12 bytes of each segment.", lambda mtu: (mtu - 40) / (mtu + 14)
            ),
            Mistake("The headers inside the MTU are no payload.", lambda mtu: mtu / (mtu + 14)),
        ),
    ),
    Exercise(
        id="11.6",
        task="Time on one device over time on n: split_speedup(alone_s, ranks, all_reduces, "
        "size_bytes, alpha_s, rate_bytes_s), each all-reduce on a ring",
        cases=(
            case(0.1, 2, 0, 0, 0.0, GB, gives=2.0, hint="Nothing to exchange: n times as fast."),
            case(0.004, 2, 40, 0, 1e-4, GB, gives=0.4, hint="Latency alone can lose it."),
            case(1.0, 4, 64, 1e8, 1e-5, 1e10, gives=1 / (0.25 + 64 * _ring(1e8, 4, 1e-5, 1e10))),
        ),
        mistakes=(
            Mistake(
                "The all-reduces are not divided by the ranks.",
                lambda t, n, k, s, a, b: n * t / (t + k * _ring(s, n, a, b)),
            ),
            Mistake(
                "Every all-reduce costs, not one.",
                lambda t, n, k, s, a, b: t / (t / n + _ring(s, n, a, b)),
            ),
            Mistake(
                "The work is divided by the ranks.",
                lambda t, n, k, s, a, b: t / (t + k * _ring(s, n, a, b)),
            ),
        ),
    ),
)
