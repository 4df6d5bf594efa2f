"""Speculative decoding in closed form: against direct sums, its limits, and itself backwards."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate import speculation as spec
from turbo_lab.estimate.verification import VerifyCost, free

ALPHAS = st.floats(0, 1)
GUESSES = st.integers(0, 12)
COSTS = st.floats(0, 2)
SLOPES = st.floats(0, 1)


def linear(slope: float):
    return lambda k: 1 + slope * k


def by_outcome(alpha: float, k: int) -> float:
    """Mean tokens as the sum over every number of kept guesses, without the closed form."""
    stops = sum((kept + 1) * alpha**kept * (1 - alpha) for kept in range(k))
    return stops + (k + 1) * alpha**k


@given(ALPHAS, GUESSES)
def test_closed_form_is_the_sum_over_outcomes(alpha: float, k: int) -> None:
    found = spec.expected_tokens(alpha, draft_tokens=k)
    assert found == pytest.approx(by_outcome(alpha, k), rel=1e-12)
    assert found == pytest.approx(math.fsum(alpha**i for i in range(k + 1)), rel=1e-12)
    assert 1 - 1e-12 <= found <= (k + 1) * (1 + 1e-12)


@given(GUESSES)
def test_limits(k: int) -> None:
    assert spec.expected_tokens(1.0, draft_tokens=k) == spec.expected_tokens(1, draft_tokens=k)
    assert spec.expected_tokens(1.0, draft_tokens=k) == k + 1
    assert spec.expected_tokens(0.0, draft_tokens=k) == 1
    nearly = spec.expected_tokens(math.nextafter(1, 0), draft_tokens=k)
    assert nearly == pytest.approx(k + 1, rel=1e-12)
    assert spec.expected_tokens(5e-324, draft_tokens=k) == 1


@given(ALPHAS, ALPHAS, st.integers(1, 12))
def test_better_guesses_write_more(one: float, other: float, k: int) -> None:
    low, high = sorted((one, other))
    few, more = (spec.expected_tokens(a, draft_tokens=k) for a in (low, high))
    assert few <= more * (1 + 1e-12)
    if high - low > 1e-6:
        assert few < more


@given(ALPHAS, st.integers(0, 12))
def test_one_alpha_and_its_positions_agree(alpha: float, k: int) -> None:
    rates = spec.rates_from_acceptance(alpha, draft_tokens=k)
    assert spec.expected_tokens(rates, draft_tokens=k) == pytest.approx(
        spec.expected_tokens(alpha, draft_tokens=k), rel=1e-12
    )
    if alpha > 1e-6:
        assert spec.conditional_rates(rates) == pytest.approx([alpha] * k)


def test_counters_become_rates_and_tokens() -> None:
    """100 drafts of up to 4: what vLLM prints as 1 + accepted / drafts."""
    rates = spec.position_rates([80, 50, 50, 10], drafts=100)
    assert rates == (0.8, 0.5, 0.5, 0.1)
    assert spec.expected_tokens(rates, draft_tokens=4) == pytest.approx(1 + 190 / 100)
    assert spec.expected_tokens(rates, draft_tokens=2) == pytest.approx(2.3)
    assert spec.conditional_rates(rates) == pytest.approx((0.8, 0.625, 1.0, 0.2))
    assert spec.conditional_rates((0.5, 0.0, 0.0)) == (0.5, 0.0)


@given(st.lists(ALPHAS, max_size=8))
def test_conditional_rates_and_back(conditional: list[float]) -> None:
    rates = spec.rates_from_conditional(conditional)
    assume(all(p > 1e-200 for p in rates))
    assert spec.conditional_rates(rates) == pytest.approx(conditional)


@given(ALPHAS, st.integers(1, 12))
def test_equivalent_alpha_round_trip(alpha: float, k: int) -> None:
    tokens = min(spec.expected_tokens(alpha, draft_tokens=k), k + 1.0)
    found = spec.equivalent_acceptance(max(1.0, tokens), draft_tokens=k)
    assert spec.expected_tokens(found, draft_tokens=k) == pytest.approx(tokens, rel=1e-12)
    assert found == pytest.approx(alpha, abs=1e-9)


@given(ALPHAS, GUESSES, COSTS)
def test_a_free_check_is_the_papers_formula(alpha: float, k: int, c: float) -> None:
    tokens = spec.expected_tokens(alpha, draft_tokens=k)
    for cost in (free, VerifyCost.from_ratios({12: 1.0})):
        found = spec.speedup(alpha, draft_tokens=k, draft_cost=c, verify_cost=cost)
        assert found == pytest.approx(tokens / (k * c + 1))


@given(ALPHAS, COSTS, SLOPES, st.integers(0, 12))
def test_the_best_length_beats_all_others(alpha: float, c: float, slope: float, most: int) -> None:
    found = spec.optimal_draft_tokens(alpha, draft_cost=c, verify_cost=linear(slope), most=most)
    best = spec.speedup(alpha, draft_tokens=found, draft_cost=c, verify_cost=linear(slope))
    assert 0 <= found <= most and best >= 1
    for k in range(most + 1):
        assert spec.speedup(alpha, draft_tokens=k, draft_cost=c, verify_cost=linear(slope)) <= best


def test_a_bad_or_dear_draft_is_left_off() -> None:
    assert spec.optimal_draft_tokens(0.0, draft_cost=0.1) == 0
    assert spec.optimal_draft_tokens(0.4, draft_cost=0.5) == 0
    assert spec.optimal_draft_tokens(1.0, draft_cost=0.1, most=7) == 7
    assert spec.optimal_draft_tokens((0.9, 0.8, 0.0), draft_cost=0.05, most=3) == 2


@given(st.integers(1, 12), COSTS, SLOPES)
def test_break_even_alpha_round_trip(k: int, c: float, slope: float) -> None:
    terms = {"draft_tokens": k, "draft_cost": c, "verify_cost": linear(slope)}
    alpha = spec.break_even_acceptance(k, draft_cost=c, verify_cost=linear(slope))
    if alpha is None:
        assert spec.speedup(1.0, **terms) < 1
        return
    assert spec.speedup(alpha, **terms) == pytest.approx(1)
    if alpha > 1e-6:
        assert spec.speedup(alpha * 0.99, **terms) < 1


@given(ALPHAS, st.integers(1, 12), SLOPES)
def test_break_even_cost_round_trip(alpha: float, k: int, slope: float) -> None:
    terms = {"draft_tokens": k, "verify_cost": linear(slope)}
    cost = spec.break_even_draft_cost(alpha, **terms)
    if cost is None:
        assert spec.speedup(alpha, draft_cost=0.0, **terms) < 1
    else:
        assert spec.speedup(alpha, draft_cost=cost, **terms) == pytest.approx(1)


@given(ALPHAS, GUESSES, COSTS)
def test_guessing_never_saves_operations(alpha: float, k: int, c_hat: float) -> None:
    found = spec.operations_ratio(alpha, draft_tokens=k, draft_operations=c_hat)
    assert found >= 1 - 1e-12


def test_the_map_holds_the_speedups() -> None:
    found = spec.speedup_map(
        [0.2, 0.9], draft_tokens=[1, 3, 5], draft_costs=[0.0, 0.3], verify_cost=linear(0.1)
    )
    assert found.shape == (2, 3, 2) and isinstance(found, np.ndarray)
    for at, a in enumerate([0.2, 0.9]):
        for kt, k in enumerate([1, 3, 5]):
            assert found[at, kt, 1] == spec.speedup(
                a, draft_tokens=k, draft_cost=0.3, verify_cost=linear(0.1)
            )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: spec.expected_tokens(1.1, draft_tokens=3), "acceptance is 1.1"),
        (lambda: spec.expected_tokens(0.5, draft_tokens=-1), "draft_tokens is -1"),
        (lambda: spec.expected_tokens([0.5], draft_tokens=2), "1 positions and 2 guesses"),
        (lambda: spec.expected_tokens([0.5, 0.6], draft_tokens=2), "rates_from_conditional"),
        (lambda: spec.position_rates([1], drafts=0), "nothing was guessed"),
        (lambda: spec.equivalent_acceptance(4.5, draft_tokens=3), "between 1 and 4"),
        (lambda: spec.speedup(0.5, draft_tokens=2, draft_cost=-1), "draft_cost -1"),
        (lambda: spec.break_even_draft_cost(0.5, draft_tokens=0), "at least 1"),
    ],
)
def test_impossible_values_are_named(call, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


def test_measured_cost_is_interpolated_and_refused_outside() -> None:
    cost = VerifyCost.from_steps({1: 0.05, 3: 0.07, 9: 0.10})
    assert [cost(k) for k in (0, 1, 2, 5, 8)] == pytest.approx([1, 1.2, 1.4, 1.7, 2.0])
    assert cost.most_draft_tokens == 8
    with pytest.raises(UsageError, match=r"over 10 tokens was not measured \(measured: 1 to 9"):
        cost(9)
    with pytest.raises(UsageError, match="not measured"):
        spec.optimal_draft_tokens(0.9, draft_cost=0.1, verify_cost=cost, most=10)


def test_measured_cost_of_a_batch() -> None:
    steps = {1: 1.0, 4: 1.1, 8: 1.4, 16: 2.8}
    alone, four = (VerifyCost.from_steps(steps, concurrency=n) for n in (1, 4))
    assert four(3) == pytest.approx(2.8 / 1.1) and four(0.5) == pytest.approx(1.25 / 1.1)
    assert four(3) > alone(3) and four.most_draft_tokens == 3
    assert VerifyCost.from_ratios({3: 1.5}, concurrency=4)(1) == pytest.approx(1 + 0.5 / 3)


@given(st.dictionaries(st.integers(1, 60), st.floats(0.01, 10), min_size=1), st.integers(1, 4))
def test_a_plain_step_costs_one_and_points_are_met(table: dict[int, float], n: int) -> None:
    table = {n: 0.5, **table}
    cost = VerifyCost.from_steps(table, concurrency=n)
    assert cost(0) == 1
    for tokens, seconds in table.items():
        assert cost(tokens / n - 1) == pytest.approx(seconds / table[n])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VerifyCost.from_steps({}), "points are"),
        (lambda: VerifyCost.from_steps({1: 0.0}), "above 0"),
        (lambda: VerifyCost.from_steps({4: 1.0, 8: 2.0}), "step over 1 tokens was not measured"),
        (lambda: VerifyCost.from_steps({1: 1.0}, concurrency=0), "concurrency is 0"),
        (lambda: VerifyCost.from_ratios({0: 2.0, 1: 3.0}), "costs 1 by definition"),
        (lambda: VerifyCost(((2.0, 1.0), (1.0, 1.0))), "rising token counts"),
    ],
)
def test_tables_without_sense_are_refused(make, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
