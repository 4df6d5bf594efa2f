"""Sizes of traps follow from schedules and order, whatever the engine costs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.papers.trap_sizes import (
    crowd_latencies_s,
    survivors,
    timeout_between,
    weak_baseline_factor,
    weak_baseline_steps,
)

from ..estimate.small_model import MODEL

TIMES = st.lists(st.floats(0.01, 100), min_size=1, max_size=60)
ENGINE = {"prompt_tokens": 32, "seats": 8, "model": MODEL}


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 60))
def test_equal_replies_that_fill_the_seats_leave_nothing_to_gain(groups, tokens):
    assert weak_baseline_factor([tokens] * 8 * groups, **ENGINE) == pytest.approx(1.0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=9, max_size=24))
def test_whole_batches_are_never_quicker_by_more_than_the_prompts_they_read_together(replies):
    assert weak_baseline_factor(replies, **ENGINE) > 0.9


def test_steps_are_counted_from_the_lengths_alone():
    assert weak_baseline_steps([16] * 24, seats=8) == 1
    # Two batches wait for their long reply; flowing, the second long one begins after 16 steps.
    assert weak_baseline_steps(([8] * 7 + [48]) * 2, seats=8) == pytest.approx(96 / 64)


def test_one_long_reply_per_batch_makes_the_factor_and_a_wider_spread_a_larger_one():
    mild = weak_baseline_factor(([8] * 7 + [16]) * 3, **ENGINE)
    wide = weak_baseline_factor(([8] * 7 + [96]) * 3, **ENGINE)
    assert 1.0 < mild < wide


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(2, 30))
def test_a_crowd_is_served_in_waves_of_equal_length(waves, tokens):
    found = crowd_latencies_s(8 * waves, output_tokens=tokens, **ENGINE)
    assert len({round(value, 9) for value in found}) == waves
    first, outside_s = found[0], MODEL.request_s - MODEL.step_s
    for wave in range(waves):
        one = found[8 * wave]
        assert one - outside_s == pytest.approx((wave + 1) * (first - outside_s))


def test_a_time_out_lies_between_the_waves_by_equal_factors():
    found = crowd_latencies_s(32, output_tokens=16, **ENGINE)
    limit = timeout_between(found, answered=8)
    assert found[7] < limit < found[8]
    assert limit / found[7] == pytest.approx(found[8] / limit)
    assert survivors(found, timeout_s=limit, p=90).lost == 24
    for wrong in (0, 32, 33):
        with pytest.raises(UsageError, match="allowed: 1 to 31"):
            timeout_between(found, answered=wrong)
    with pytest.raises(UsageError, match="end together"):
        timeout_between(found, answered=4)


@given(TIMES, st.floats(0.01, 100), st.sampled_from([50, 90, 95, 99]))
def test_survivors_are_never_slower_than_all_and_never_beyond_the_time_out(times, limit, p):
    read = survivors(times, timeout_s=limit, p=p)
    assert read.sent == len(times) and read.lost == sum(t > limit for t in times)
    if read.survivors_s is None:
        with pytest.raises(UnmeasuredError, match="given up"):
            _ = read.flattery
    else:
        assert read.survivors_s <= limit and read.survivors_s <= read.all_s + 1e-9
        assert read.flattery >= 1 - 1e-9
    if read.lost == 0:
        assert read.survivors_s == read.all_s and read.flattery == 1


def test_no_latencies_are_no_reading():
    with pytest.raises(UnmeasuredError, match="no latencies"):
        survivors([], timeout_s=1.0, p=90)
