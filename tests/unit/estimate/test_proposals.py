"""Steps with and without a guess: against enumerated batches, and equal to the plain formula."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate import proposals as prop
from turbo_lab.estimate.speculation import expected_tokens, rates_from_acceptance, speedup
from turbo_lab.estimate.verification import VerifyCost

ALPHAS = st.floats(0, 1)
COUNTS = st.dictionaries(st.integers(0, 4), st.integers(1, 9), min_size=1)


def curved(k: float) -> float:
    return 1 + 0.3 * k + 0.05 * k * k


@given(ALPHAS, st.integers(1, 10), st.floats(0, 1), st.integers(1, 5))
def test_a_guess_in_every_step_is_the_plain_formula(
    alpha: float, k: int, c: float, users: int
) -> None:
    found = prop.mixed_speedup(
        prop.Proposals.fixed(k), acceptance=alpha, draft_cost=c, verify_cost=curved,
        concurrency=users,
    )  # fmt: skip
    plain = speedup(alpha, draft_tokens=k, draft_cost=c, verify_cost=curved)
    assert found == pytest.approx(plain)


@settings(max_examples=60)
@given(COUNTS, ALPHAS, st.floats(0, 1), st.integers(1, 4))
def test_a_batch_is_the_sum_over_all_of_its_lengths(
    counts: dict[int, int], alpha: float, c: float, users: int
) -> None:
    lengths = prop.Proposals.from_lengths(counts)
    cost = tokens = 0.0
    for batch in itertools.product(range(len(lengths.shares)), repeat=users):
        share = math.prod(lengths.shares[length] for length in batch)
        total = sum(batch)
        cost += share * (max(batch) * c + curved(total / users) if total else 1.1)
        tokens += share * sum(expected_tokens(alpha, draft_tokens=n) for n in batch) / users
    terms = {"draft_cost": c, "verify_cost": curved, "concurrency": users, "empty_step_cost": 1.1}
    found = prop.mixed_speedup(lengths, acceptance=alpha, **terms)
    assert found == pytest.approx(tokens / cost)
    assert math.fsum(s for _, s in prop.step_costs(lengths, **terms)) == pytest.approx(1)


def test_a_mean_of_ratios_is_not_the_speedup() -> None:
    """Half of the steps write 5 tokens at cost 3, half one at cost 1: 3 over 2, not 4/3."""
    half = prop.Proposals.fixed(4, share=0.5)
    found = prop.mixed_speedup(half, acceptance=1.0, verify_cost=lambda k: 3.0)
    assert found == pytest.approx(3 / 2)


def test_no_guess_at_all_is_plain_decoding() -> None:
    never = prop.Proposals((1.0,))
    assert prop.mixed_speedup(never, acceptance=0.9, verify_cost=curved) == 1
    assert prop.mixed_speedup(never, acceptance=0.9, empty_step_cost=1.25) == pytest.approx(0.8)
    assert never.share == never.mean_tokens == 0


@given(ALPHAS, st.floats(0, 1), st.integers(1, 8))
def test_rates_per_position_are_means_over_drafts(alpha: float, share: float, k: int) -> None:
    some = prop.Proposals.fixed(k, share=share)
    one = prop.tokens_per_step(some, acceptance=alpha)
    rates = rates_from_acceptance(alpha, draft_tokens=k)
    assert prop.tokens_per_step(some, acceptance=rates) == pytest.approx(one)
    assert one == pytest.approx(1 + share * (expected_tokens(alpha, draft_tokens=k) - 1))


def test_counters_tell_share_and_mean_length() -> None:
    """3 requests: 103 tokens, 40 accepted, so 60 decode steps, 20 of them with 4.5 guesses."""
    found = prop.Proposals.from_counters(
        generated_tokens=103, accepted_tokens=40, drafts=20, draft_tokens=90, requests=3
    )
    assert found.share == pytest.approx(1 / 3) and found.mean_tokens == pytest.approx(1.5)
    assert found.shares == pytest.approx((2 / 3, 0, 0, 0, 1 / 6, 1 / 6))
    tokens = prop.tokens_per_step(found, acceptance=(1.0, 0.5, 0.5, 0.0, 0.0))
    assert tokens == pytest.approx(100 / 60)
    whole = prop.Proposals.from_counters(
        generated_tokens=100, accepted_tokens=0, drafts=100, draft_tokens=500
    )
    assert whole.shares == (0, 0, 0, 0, 0, 1)
    none = prop.Proposals.from_counters(
        generated_tokens=9, accepted_tokens=0, drafts=0, draft_tokens=0
    )
    assert none == prop.Proposals((1.0,))


@given(COUNTS, st.integers(1, 4))
def test_a_straight_cost_needs_only_the_mean_length(counts: dict[int, int], users: int) -> None:
    """Where the cost is a straight line, the spread over lengths plays no part."""
    lengths = prop.Proposals.from_lengths(counts)
    pairs = prop.step_costs(lengths, verify_cost=lambda k: 1 + 0.2 * k, concurrency=users)
    mean = math.fsum(cost * share for cost, share in pairs)
    assert mean == pytest.approx(1 + 0.2 * lengths.mean_tokens)


@given(ALPHAS, st.integers(1, 8), st.floats(0, 1))
def test_gaps_of_a_constant_burst(alpha: float, k: int, c: float) -> None:
    terms = {"draft_cost": c, "verify_cost": curved}
    gaps = prop.burst_gaps(prop.Proposals.fixed(k), acceptance=alpha, **terms)
    cost = k * c + curved(k)
    assert gaps.burst_mean == pytest.approx(cost)
    assert gaps.burst_p95 == gaps.burst_p99 == pytest.approx(cost)
    assert gaps.token_mean == pytest.approx(1 / speedup(alpha, draft_tokens=k, **terms))
    assert gaps.burst_tokens == pytest.approx(expected_tokens(alpha, draft_tokens=k))
    assert (
        gaps.token_p95 == gaps.token_p99 == pytest.approx(cost)
    )  # 1 gap in at most 9 is above 5 %


def test_tails_show_the_dear_steps_and_the_mean_does_not() -> None:
    """A step in 25 has a guess of 8 tokens: faster on average, and P99 waits for it."""
    rare = prop.Proposals.fixed(8, share=0.04)
    gaps = prop.burst_gaps(rare, acceptance=1.0, verify_cost=lambda k: 4.0)
    assert gaps.token_mean == pytest.approx((0.96 + 0.16) / 1.32) and gaps.token_mean < 1
    assert (gaps.burst_p95, gaps.burst_p99) == (1, 4)
    assert (gaps.token_p95, gaps.token_p99) == (1, 4)
    many = prop.burst_gaps(prop.Proposals.fixed(31), acceptance=1.0, verify_cost=lambda k: 4.0)
    assert (many.token_p95, many.token_p99, many.burst_p95) == (0, 4, 4)
    plain = prop.burst_gaps(prop.Proposals((1.0,)), acceptance=0.5)
    assert plain == prop.BurstGaps(*[1.0] * 7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: prop.Proposals((0.5, 0.4)), "sum to 1"),
        (lambda: prop.Proposals(()), "shares are"),
        (lambda: prop.Proposals.fixed(0), "draft_tokens 0"),
        (lambda: prop.Proposals.from_lengths({}), "counts are"),
        (lambda: prop.Proposals.from_lengths({-1: 3}), "counts are"),
        (
            lambda: prop.Proposals.from_counters(
                generated_tokens=10, accepted_tokens=5, drafts=6, draft_tokens=9
            ),
            "more drafts than steps",
        ),
        (
            lambda: prop.step_costs(
                prop.Proposals.fixed(2),
                verify_cost=VerifyCost.from_ratios({9: 2.0}),
                concurrency=4,
            ),
            "concurrency is 4 and verify_cost was measured at 1",
        ),
        (
            lambda: prop.mixed_speedup(
                prop.Proposals.fixed(5),
                acceptance=0.5,
                verify_cost=VerifyCost.from_ratios({4: 2.0}),
            ),
            "not measured",
        ),
    ],
)
def test_impossible_values_are_named(call, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()
