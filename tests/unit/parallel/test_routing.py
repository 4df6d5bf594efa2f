from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.experts import capacity, dropped_share
from turbo_lab.parallel.routing import (
    Routes,
    even_routes,
    routed_bytes,
    sent_routed_bytes,
    top_k_routes,
    within_capacity,
)

seeds, tokens, ks = st.integers(0, 99), st.integers(0, 40), st.integers(1, 8)


def routes(seed: int, count: int, k: int, experts: int = 8) -> Routes:
    return top_k_routes(np.random.default_rng(seed).standard_normal((count, experts)), k=k)


@given(seeds, tokens, ks)
def test_gates_sum_to_one_and_the_best_experts_are_taken(seed: int, count: int, k: int) -> None:
    logits = np.random.default_rng(seed).standard_normal((count, 8))
    found = top_k_routes(logits, k=k)
    assert found.experts.shape == found.gates.shape == (count, k)
    np.testing.assert_allclose(found.gates.sum(axis=1), np.ones(count))
    assert np.all(np.diff(found.gates, axis=1) <= 0)
    for row, chosen in zip(logits, found.experts, strict=True):
        assert set(chosen) == set(np.argsort(row)[8 - k :])
    assert found.load().sum() == count * k and found.dropped_share == 0


def test_equal_logits_take_the_lower_number_and_equal_gates() -> None:
    found = top_k_routes(np.zeros((1, 4)), k=2)
    assert found.experts.tolist() == [[0, 1]] and found.gates.tolist() == [[0.5, 0.5]]


@given(seeds, tokens, ks, st.floats(0.1, 2.0))
def test_capacity_drops_exactly_what_is_too_much(
    seed: int, count: int, k: int, factor: float
) -> None:
    before = routes(seed, count, k)
    places = capacity(max(1, count), experts=8, experts_per_token=k, capacity_factor=factor)
    after = within_capacity(before, places=places)
    np.testing.assert_array_equal(after.load(), np.minimum(before.load(), places))
    kept = after.experts >= 0
    np.testing.assert_array_equal(after.experts[kept], before.experts[kept])
    np.testing.assert_array_equal(after.gates, np.where(kept, before.gates, 0))
    if count:
        wanted = dropped_share(before.load().tolist(), slots=places)
        assert after.dropped_share == pytest.approx(wanted)


def test_first_choices_go_before_second_choices() -> None:
    before = Routes(np.array([[1, 0], [0, 1], [0, 1]]), np.full((3, 2), 0.5), 2)
    after = within_capacity(before, places=2)
    assert after.experts.tolist() == [[1, -1], [0, 1], [0, -1]]


@given(seeds, tokens, ks, st.sampled_from([1, 2, 4, 8]))
def test_routed_bytes(seed: int, count: int, k: int, ranks: int) -> None:
    found = routes(seed, count, k)
    rows = found.rows_to_ranks(ranks=ranks)
    assert rows.sum() == count * k
    assert routed_bytes(found, ranks=ranks, hidden=16) == (0 if ranks == 1 else count * k * 64)
    sent = [sent_routed_bytes(found, rank=r, ranks=ranks, hidden=16) for r in range(ranks)]
    assert sum(sent) == (ranks - 1) * count * k * 64  # each row stays on one of the ranks
    once = found.rows_to_ranks(ranks=ranks, once_per_rank=True)
    assert np.all(once <= rows) and np.all(once <= count)
    assert ranks < 8 or np.array_equal(once, rows)  # one expert per rank: nothing to save


def test_wrong_values() -> None:
    with pytest.raises(UsageError, match="k is 9; allowed: 1 to 8"):
        routes(0, 3, 9)
    with pytest.raises(UsageError, match="8 experts / 3 ranks"):
        routed_bytes(routes(0, 3, 2), ranks=3, hidden=4)


@given(tokens, ks)
def test_dealt_out_in_turn_all_experts_get_the_same(count: int, k: int) -> None:
    found = even_routes(count, experts=8, k=k)
    load = found.load()
    assert load.sum() == count * k and load.max() - load.min() <= 1
    assert all(len(set(row)) == k for row in found.experts)  # never one expert twice


def test_even_routes_need_enough_experts() -> None:
    with pytest.raises(UsageError, match="k is 9; allowed: 1 to 8"):
        even_routes(3, experts=8, k=9)
