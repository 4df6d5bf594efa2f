"""Closed forms of handing a prompt over, against each other and against hand-made times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.estimate.handover import HandoverCost, crossing_bytes_s
from turbo_lab.estimate.prefill import PrefillLaw
from turbo_lab.models.catalog import load_model
from turbo_lab.models.memory import kv_bytes_per_token

SPEC = load_model("smollm2-135m").spec()
LAW = PrefillLaw(SPEC, 0.02, 4e-11, 4e-11)
COST = HandoverCost(LAW, bytes_per_token=46_080, block_tokens=128, fixed_s=0.03)


def test_bytes_are_whole_blocks_times_the_models_bytes() -> None:
    assert kv_bytes_per_token(SPEC, dtype="fp32") == COST.bytes_per_token
    assert COST.moved_bytes(641) == 640 * 46_080 == 5 * 30 * 196_608
    assert [COST.moved_tokens(n) for n in (1, 128, 129, 256, 257)] == [0, 0, 128, 128, 256]


@given(st.integers(129, 4096))
def test_at_the_break_even_both_ways_take_the_same_time(tokens: int) -> None:
    rate = COST.break_even_bytes_s(tokens)
    both = COST.transfer_s(tokens, bandwidth_bytes_s=rate), COST.recompute_s(tokens)
    assert both[0] == pytest.approx(both[1])
    assert COST.transfer_s(tokens, bandwidth_bytes_s=2 * rate) < both[1]
    assert COST.transfer_s(tokens, bandwidth_bytes_s=rate / 2) > both[1]


def test_longer_prompts_need_less_bandwidth() -> None:
    """Attention makes a token dearer to compute the later it stands; its bytes stay the same."""
    rates = [COST.break_even_bytes_s(128 * blocks + 1) for blocks in (1, 2, 4, 8, 32)]
    assert rates == sorted(rates, reverse=True)


def test_no_bandwidth_is_enough_for_what_is_computed_at_once() -> None:
    for cost, tokens in (
        (COST, 100),
        (HandoverCost(LAW, 46_080, 128, fixed_s=9.0), 641),
        (HandoverCost(LAW, 46_080, 128, host_s_per_byte=1e-3), 641),
    ):
        with pytest.raises(UnmeasuredError, match="no bandwidth makes moving"):
            cost.break_even_bytes_s(tokens)
    with pytest.raises(UsageError, match="above 0"):
        COST.transfer_s(641, bandwidth_bytes_s=0)


@given(st.floats(1e5, 1e9), st.floats(0.1, 50))
def test_the_crossing_of_times_that_follow_the_law_is_the_break_even(
    rate: float, recompute_s: float
) -> None:
    size, rest_s = 3e7, 0.01 * recompute_s
    goal = size / rate + rest_s
    samples = {rate * f: [size / (rate * f) + rest_s] for f in (0.5, 0.8, 1.7)}
    assert crossing_bytes_s(samples, recompute_s=[goal] * 3) == pytest.approx(rate)


def test_a_crossing_that_was_not_seen_is_not_invented() -> None:
    with pytest.raises(UnmeasuredError, match="moving won at every bandwidth down to 1"):
        crossing_bytes_s({1.0: [2.0], 2.0: [1.0]}, recompute_s=[3.0])
    with pytest.raises(UnmeasuredError, match="computing again won at every bandwidth up to 2"):
        crossing_bytes_s({1.0: [2.0], 2.0: [1.0]}, recompute_s=[0.5])
    with pytest.raises(UnmeasuredError, match="two bandwidths"):
        crossing_bytes_s({1.0: [2.0]}, recompute_s=[0.5])
    with pytest.raises(UnmeasuredError, match="no sample"):
        crossing_bytes_s({1.0: [], 2.0: [1.0]}, recompute_s=[0.5])
