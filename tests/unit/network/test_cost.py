"""Algorithms send what they must, their times follow, and the fit finds what was planted."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.network.algorithms import (
    ALGORITHMS,
    chunk_bytes,
    received_bytes,
    rounds,
    sent_bytes,
    sent_messages,
)
from turbo_lab.network.cost import (
    MessageCost,
    Network,
    best_algorithm,
    busbw,
    busbw_factor,
    collective_s,
    fit_message_cost,
    held_out_error,
    hierarchical_all_reduce,
    latency_bandwidth,
    message_point,
    rounds_s,
)

CASES = [(kind, name) for kind, names in ALGORITHMS.items() for name in names]
RANKS = st.integers(2, 9)
SIZES = st.integers(0, 10_000)


@pytest.mark.parametrize(("kind", "algorithm"), CASES)
@settings(max_examples=30)
@given(total=SIZES, ranks=RANKS)
def test_what_is_sent_is_received(kind: str, algorithm: str, total: int, ranks: int) -> None:
    steps = rounds(kind, total, ranks=ranks, algorithm=algorithm)
    everyone = range(ranks)
    sent = sum(sent_bytes(steps, rank=r) for r in everyone)
    assert sent == sum(received_bytes(steps, rank=r) for r in everyone)
    assert all(m.source != m.target and m.size_bytes > 0 for step in steps for m in step)
    least = {"all_reduce": 2 * (ranks - 1) * total, "sendrecv": ranks * total}
    if kind in ("gather", "scatter"):
        assert sent == total - chunk_bytes(total, ranks=ranks)[0]
    else:
        assert sent == least.get(kind, (ranks - 1) * total)


@given(total=SIZES, ranks=RANKS)
def test_gathered_data_is_complete(total: int, ranks: int) -> None:
    chunks = chunk_bytes(total, ranks=ranks)
    for algorithm in ALGORITHMS["all_gather"]:
        steps = rounds("all_gather", total, ranks=ranks, algorithm=algorithm)
        for rank in range(ranks):
            assert received_bytes(steps, rank=rank) == total - chunks[rank]


@given(ranks=st.integers(2, 12), algorithm=st.sampled_from(["ring", "tree", "direct"]))
def test_no_rank_passes_on_what_it_has_not_got(ranks: int, algorithm: str) -> None:
    """Replays an all-gather of one byte per rank; bit r stands for rank r's byte."""
    held = {r: 1 << r for r in range(ranks)}
    for step in rounds("all_gather", ranks, ranks=ranks, algorithm=algorithm):
        before = dict(held)
        for m in step:
            assert before[m.source].bit_count() >= m.size_bytes
            held[m.target] |= before[m.source]
    assert all(held[r] == (1 << ranks) - 1 for r in range(ranks))


@given(total=SIZES, ranks=RANKS, element=st.sampled_from([1, 2, 4]))
def test_chunks_cover_the_size(total: int, ranks: int, element: int) -> None:
    size = total * element
    chunks = chunk_bytes(size, ranks=ranks, element_bytes=element)
    assert sum(chunks) == size and len(chunks) == ranks
    assert all(c % element == 0 for c in chunks) and list(chunks) == sorted(chunks, reverse=True)


def test_half_elements_are_refused() -> None:
    with pytest.raises(UsageError, match="whole number of elements"):
        chunk_bytes(10, ranks=2, element_bytes=4)


@given(
    kind=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]),
    ranks=RANKS,
    parts=st.integers(1, 10_000),
    rate=st.floats(1e3, 1e12),
)
def test_ring_without_latency_has_the_links_rate(
    kind: str, ranks: int, parts: int, rate: float
) -> None:
    size = parts * ranks
    seconds = collective_s(kind, size, network=Network.flat(ranks, latency_bandwidth(0.0, rate)))
    assert busbw(kind, size, seconds, ranks) == pytest.approx(rate)


@given(ranks=RANKS, seconds=st.floats(1e-6, 10), factor=st.integers(2, 9))
def test_busbw_scales_with_size_and_inversely_with_time(
    ranks: int, seconds: float, factor: int
) -> None:
    one = busbw("all_reduce", 1000, seconds, ranks)
    assert busbw("all_reduce", 1000 * factor, seconds * factor, ranks) == pytest.approx(one)
    assert busbw("alltoall", 1000, seconds, ranks) == busbw("all_to_all", 1000, seconds, ranks)
    assert busbw_factor("all_reduce", ranks) == 2 * busbw_factor("all_gather", ranks)


def test_tree_wins_small_and_ring_wins_large() -> None:
    cost = latency_bandwidth(1e-5, 1e9)
    n16 = Network(tuple(range(16)), cost, cost, gap_s=1e-5)
    assert best_algorithm("all_reduce", 256, network=n16)[0] == "tree"
    assert best_algorithm("alltoall", 256, network=n16) == best_algorithm(
        "all_to_all", 256, network=n16
    )
    assert collective_s("all_reduce", 2**26, network=n16) < collective_s(
        "all_reduce", 2**26, network=n16, algorithm="tree"
    )


def test_two_tiers_send_less_between_hosts() -> None:
    fast, slow = latency_bandwidth(2e-6, 10e9), latency_bandwidth(30e-6, 0.125e9)
    network = Network.blocks(2, ranks_per_host=4, inside=fast, between=slow)
    steps = hierarchical_all_reduce(8_000_000, hosts=2, ranks_per_host=4)
    away = [
        m for step in steps for m in step if network.host_of[m.source] != network.host_of[m.target]
    ]
    assert sum(m.size_bytes for m in away) == 2 * 8_000_000  # 2(h-1)/h S from each of two hosts
    flat_s = collective_s("all_reduce", 8_000_000, network=network)
    assert rounds_s(steps, network) < flat_s
    scattered = network.placed([0, 4, 1, 5, 2, 6, 3, 7])  # every neighbour on the other host
    assert collective_s("all_reduce", 8_000_000, network=scattered) > 3 * flat_s


def test_a_hosts_link_is_shared() -> None:
    cost = latency_bandwidth(0.0, 1e6)
    pairs = Network.blocks(2, ranks_per_host=2, inside=latency_bandwidth(0.0, 1e12), between=cost)
    alone = Network.flat(2, cost)
    shared_s = collective_s("all_to_all", 4_000, network=pairs, algorithm="direct")
    # two ranks send two chunks of 1,000 bytes each over one link
    assert shared_s == pytest.approx(4_000 / 1e6)
    assert collective_s("all_to_all", 4_000, network=alone) == pytest.approx(2_000 / 1e6)


COSTS = st.builds(
    lambda alpha, slopes, steps: MessageCost(
        alpha,
        tuple(slopes[: len(steps) + 1]),
        tuple(float(sum(steps[: i + 1])) for i in range(len(steps))),
    ),
    st.floats(0, 1e-3),
    st.lists(st.floats(0, 1e-6), min_size=4, max_size=4),
    st.lists(st.integers(1, 10**6), max_size=3),
)


@given(cost=COSTS, a=st.floats(0, 1e8), b=st.floats(0, 1e8))
def test_a_larger_message_never_costs_less(cost: MessageCost, a: float, b: float) -> None:
    low, high = sorted((a, b))
    rise = cost.seconds(high) - cost.seconds(low)
    assert rise >= -1e-12 * cost.seconds(high)
    # continuous: a step in size cannot cost more than at the steepest slope
    assert rise <= (high - low) * max(cost.slopes_s_byte) * (1 + 1e-9) + 1e-12


@settings(max_examples=12)
@given(
    alpha=st.floats(1e-6, 1e-3),
    first=st.floats(1e-10, 1e-8),
    ratios=st.tuples(st.sampled_from([0.1, 4.0, 10.0]), st.sampled_from([0.1, 5.0])),
    breaks=st.tuples(st.integers(14, 16), st.integers(19, 21)),
)
def test_fit_recovers_planted_breaks(
    alpha: float, first: float, ratios: tuple[float, float], breaks: tuple[int, int]
) -> None:
    slopes = (first, first * ratios[0], first * ratios[0] * ratios[1])
    planted = MessageCost(alpha, slopes, tuple(float(2**b) for b in breaks))
    points = [(2.0**k, planted.seconds(2.0**k)) for k in range(8, 27)]
    fitted = fit_message_cost(points, most_breaks=2)
    # The planted breaks fit exactly, so what was chosen instead may miss by what a break costs:
    # 1 % * sqrt(exp(4 ln(19) / 19) - 1) in the mean.
    errors = [abs(fitted.seconds(size) / seconds - 1) for size, seconds in points]
    assert sum(errors) / len(errors) < 0.012
    assert held_out_error(points, most_breaks=2).median < 0.1


def test_planted_breaks_are_found_where_they_show() -> None:
    planted = MessageCost(2e-5, (1e-9, 8e-9, 1e-9), (65536.0, 2.0**20))
    fitted = fit_message_cost([(2.0**k, planted.seconds(2.0**k)) for k in range(8, 26)])
    assert fitted.breaks_bytes == planted.breaks_bytes
    assert fitted.slopes_s_byte == pytest.approx(planted.slopes_s_byte, rel=1e-3)


def test_a_straight_line_gets_no_break() -> None:
    line = latency_bandwidth(1e-5, 1e9)
    points = [(2.0**k, line.seconds(2.0**k) * (1.003 if k % 2 else 0.997)) for k in range(8, 26)]
    assert fit_message_cost(points).breaks_bytes == ()
    assert line.half_size_bytes() == pytest.approx(1e4, rel=1e-6)


def test_noise_is_known_from_repeats() -> None:
    line = latency_bandwidth(1e-5, 1e9)
    points = [(2.0**k, line.seconds(2.0**k) * f) for k in range(8, 20) for f in (1.0, 1.2)]
    found = held_out_error(points)
    assert found.noise == pytest.approx(0.2)
    assert found.within(0.0) == (found.median <= 0.2)


def test_collectives_of_several_ranks_make_one_curve() -> None:
    planted = latency_bandwidth(2e-5, 0.5e9)
    points = []
    for n in (2, 3, 4):
        network = Network.flat(n, planted)
        for size in (n * 256, n * 4096, n * 65536, n * 2**20):
            seconds = collective_s("all_reduce", size, network=network)
            points.append(message_point("all_reduce", size, seconds, ranks=n))
    fitted = fit_message_cost(points)
    assert fitted.alpha_s == pytest.approx(2e-5, rel=0.01)
    assert fitted.bandwidth_bytes_s() == pytest.approx(0.5e9, rel=0.01)


def test_wrong_use_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"all_to_all has no algorithm 'tree'.*Allowed: direct, ring"
    ):
        rounds("all_to_all", 8, ranks=2, algorithm="tree")
    with pytest.raises(UsageError, match="at least 2"):
        busbw("broadcast", 8, 1.0, 1)
    with pytest.raises(UsageError, match="seconds above 0"):
        busbw("broadcast", 8, 0.0, 2)
    for size, seconds in ((math.nan, 1.0), (math.inf, 1.0), (8, math.inf), (8, math.nan)):
        with pytest.raises(UsageError, match="must be finite"):
            busbw("broadcast", size, seconds, 2)
    for ranks in (2.5, math.nan):
        with pytest.raises(UsageError, match="whole number"):
            busbw("all_reduce", 8, 1.0, ranks)
    with pytest.raises(UsageError, match="at least two sizes"):
        fit_message_cost([(8, 1.0), (8, 1.1)])
    with pytest.raises(UsageError, match="nothing negative"):
        MessageCost(1.0, (-1.0,))
    assert sent_messages(rounds("all_gather", 90, ranks=3), rank=0) == 2
