"""The solutions of notebook 11 and the package give the same numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.course.solutions import nb11
from turbo_lab.estimate.tensor_parallel import Exchange
from turbo_lab.network.busbw import busbw
from turbo_lab.network.compression import Compression
from turbo_lab.network.cost import Network, best_algorithm, collective_s, latency_bandwidth
from turbo_lab.network.headers import wire_efficiency
from turbo_lab.parallel.break_even import split_step_s

RANKS, ALPHA, RATE = st.integers(2, 16), st.floats(1e-7, 1e-3), st.floats(1e6, 1e12)
SIZE = st.integers(1, 10**6)


@given(st.sampled_from(["all_reduce", "all_gather", "all_to_all", "broadcast"]), SIZE, RANKS)
def test_bus_bandwidth(kind: str, size: int, ranks: int) -> None:
    assert nb11.bus_bandwidth(kind, size, 0.1, ranks) == pytest.approx(
        busbw(kind, size, 0.1, ranks)
    )


@given(SIZE, RANKS, ALPHA, RATE)
def test_ring(size: int, ranks: int, alpha: float, rate: float) -> None:
    whole = size * ranks * 4  # all chunks equal
    network = Network.flat(ranks, latency_bandwidth(alpha, rate))
    told = collective_s("all_reduce", whole, network=network)
    assert nb11.ring_all_reduce_s(whole, ranks, alpha, rate) == pytest.approx(told)


@given(st.sampled_from([4, 8, 16]), st.floats(1e-6, 1e-3), st.floats(1e8, 1e11))
def test_crossover(ranks: int, alpha: float, rate: float) -> None:
    size = nb11.ring_beats_tree_from(ranks, alpha, rate)
    network = Network.flat(ranks, latency_bandwidth(alpha, rate))

    def seconds(algorithm: str, factor: float) -> float:
        whole = max(ranks, int(size * factor) // ranks * ranks)
        return collective_s("all_reduce", whole, network=network, algorithm=algorithm)

    if size > 100 * ranks:
        assert seconds("ring", 1.1) < seconds("tree", 1.1)
        assert seconds("ring", 0.9) > seconds("tree", 0.9)
    assert best_algorithm("all_reduce", 10**10 // ranks * ranks, network=network)[0] != "tree"


@given(st.floats(1, 1e9), st.floats(1, 1e9), st.floats(1e-6, 1))
def test_compression(plain: float, coded: float, coding: float) -> None:
    told = Compression(plain, coded, coding).break_even_bytes_s
    assert nb11.compression_break_even(plain, coded, coding) == pytest.approx(told)


@pytest.mark.parametrize("mtu", [576, 1400, 1500, 9000])
def test_payload_share(mtu: int) -> None:
    assert nb11.payload_share(mtu) == pytest.approx(wire_efficiency(mtu))


@given(st.floats(1e-3, 10), RANKS, st.integers(1, 200), SIZE, ALPHA, RATE)
def test_split(alone: float, ranks: int, count: int, size: int, alpha: float, rate: float) -> None:
    work = [Exchange("all_reduce", "layers", count, size)]
    told = alone / split_step_s(
        alone, work, ranks=ranks, cost=lambda _, s: nb11.ring_all_reduce_s(s, ranks, alpha, rate)
    )
    found = nb11.split_speedup(alone, ranks, count, size, alpha, rate)
    assert math.isclose(found, told, rel_tol=1e-9)
