"""When splitting a step over a link pays: planted costs, and the rate between gain and loss."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.tensor_parallel import Exchange
from turbo_lab.network.busbw import seconds_at
from turbo_lab.parallel.break_even import (
    break_even_bytes_s,
    exchanges_s,
    greedy_exchanges,
    spec_of,
    split_step_s,
)
from turbo_lab.parallel.payload import argmax_bytes
from turbo_lab.parallel.weights import small_config


def test_exchanges_of_a_greedy_step() -> None:
    found = greedy_exchanges(spec_of(small_config()), rows=3, tokens=5, ranks=2)
    sizes = {(one.kind, one.where): (one.count, one.size_bytes) for one in found}
    assert sizes == {
        ("all_reduce", "embedding"): (1, 15 * 32 * 4),
        ("all_reduce", "layers"): (4, 15 * 32 * 4),
        ("all_gather", "argmax"): (1, argmax_bytes(rows=3, ranks=2)),
    }


@given(
    alone=st.floats(1e-3, 10), ranks=st.integers(2, 8), size=st.integers(1000, 10**8),
    count=st.integers(1, 200), latency=st.floats(0, 1e-3),
)  # fmt: skip
def test_at_the_break_even_rate_both_take_as_long(
    alone: float, ranks: int, size: int, count: int, latency: float
) -> None:
    work = [Exchange("all_reduce", "layers", count, size)]
    rate = break_even_bytes_s(alone, work, ranks=ranks, latency_s=count * latency)

    def cost(kind: str, total: int) -> float:
        return latency + seconds_at(kind, total, rate, ranks)

    if math.isinf(rate):
        assert count * latency >= (1 - 1 / ranks) * alone
    else:
        assert split_step_s(alone, work, ranks=ranks, cost=cost) == pytest.approx(alone)


def test_costs_add_up_and_nonsense_is_refused() -> None:
    work = [Exchange("all_reduce", "layers", 4, 100), Exchange("all_gather", "argmax", 1, 8)]
    assert exchanges_s(work, cost=lambda kind, size: size) == 408
    assert split_step_s(2.0, work, ranks=2, cost=lambda kind, size: 0.0) == 1.0
    with pytest.raises(UsageError, match="alone_s 0"):
        split_step_s(0.0, work, ranks=2, cost=lambda kind, size: 0.0)
