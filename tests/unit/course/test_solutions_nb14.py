"""The solutions of notebook 14 and the simulator give the same numbers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.course.solutions import nb14
from turbo_lab.metrics.cost import PowerModel
from turbo_lab.sim.clock import run_fs
from turbo_lab.sim.job import Job
from turbo_lab.sim.routers import PowerOfTwo, PrefixAware
from turbo_lab.workload.trace_request import TraceRequest


class Stand:
    """What a router sees of a replica."""

    def __init__(self, tag: int, load: int) -> None:
        self.tag, self.load = tag, load


@given(st.integers(0, 500), st.integers(1, 10**9), st.integers(0, 10**6))
def test_run(steps: int, first: int, growth: int) -> None:
    assert nb14.run_s(steps, first, growth) == pytest.approx(run_fs(steps, first, growth))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(0, 99))
def test_two_choices(loads: list[int], seed: int) -> None:
    draw = random.Random(seed)
    first, second = (int(draw.random() * len(loads)) for _ in range(2))
    router = PowerOfTwo(seed)
    router.members([Stand(i, load) for i, load in enumerate(loads)])  # type: ignore[arg-type]
    chosen = router.pick(Job(TraceRequest(0.0, 1, 1), 0))
    assert chosen.tag == nb14.better_of_two(loads, first, second)


@given(st.lists(st.integers(0, 5), max_size=6), st.lists(st.integers(0, 5), max_size=6))
def test_blocks_hit(seen: list[int], ids: list[int]) -> None:
    router = PrefixAware()
    stand = Stand(0, 0)
    router.members([stand])  # type: ignore[list-item]
    router._seen[0] = dict.fromkeys(seen)
    found = router._match(stand, tuple(ids))  # type: ignore[arg-type]
    assert found == nb14.blocks_hit(set(seen), ids)


@given(st.floats(0.1, 1e3), st.floats(0.1, 1e2), st.floats(0.1, 1.0))
def test_replicas(rate: float, saturation: float, share: float) -> None:
    count = nb14.replicas_needed(rate, saturation, share)
    assert count * saturation * share >= rate * (1 - 1e-9)
    assert count == 1 or (count - 1) * saturation * share < rate * (1 + 1e-9)


@given(
    st.floats(1, 1e3), st.floats(0, 1), st.floats(0, 1e4), st.floats(0, 1e4), st.integers(1, 999)
)
def test_energy(busy_w: float, share: float, busy_s: float, idle_s: float, count: int) -> None:
    power = PowerModel(busy_w, share * busy_w)
    wanted = power.energy_j(busy_s=busy_s, up_s=busy_s + idle_s)
    assert wanted is not None
    found = nb14.energy_per_request_j(busy_w, share * busy_w, busy_s, busy_s + idle_s, count)
    assert found == pytest.approx(wanted / count, abs=1e-6)
