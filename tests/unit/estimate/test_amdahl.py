from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate import amdahl

SHARES = st.floats(0.0, 0.99)
SPEEDS = st.floats(0.01, 1e6)


@pytest.mark.parametrize(
    ("share", "faster", "whole"),
    [(0.95, 4096, 19.908), (0.5, 2, 4 / 3), (0.0, 9, 1.0), (1.0, 3, 3.0), (0.9, math.inf, 10.0)],
)
def test_the_whole_gets_faster_by_the_law(share, faster, whole):
    assert amdahl.speedup(share, faster=faster) == pytest.approx(whole, rel=1e-4)


@given(share=SHARES, faster=SPEEDS)
def test_it_is_the_time_of_the_stages_before_over_after(share, faster):
    before, after = 1.0, (1 - share) + share / faster
    assert amdahl.speedup(share, faster=faster) == pytest.approx(before / after)
    assert amdahl.speedup(share, faster=faster) <= amdahl.limit(share) * (1 + 1e-12)


@given(share=st.floats(0.05, 0.99), faster=st.floats(0.1, 1e3))
def test_what_is_needed_gives_what_was_wanted(share, faster):
    whole = amdahl.speedup(share, faster=faster)
    assert amdahl.needed(share, whole=whole) == pytest.approx(faster, rel=1e-6)


def test_more_than_the_limit_cannot_be_had_and_is_said_with_the_limit():
    assert amdahl.needed(0.5, whole=2.0) == math.inf
    with pytest.raises(UsageError, match=r"2 times as fast at most, not 3"):
        amdahl.needed(0.5, whole=3.0)


def test_a_part_of_no_time_needs_nothing_and_can_do_nothing():
    assert amdahl.needed(0.0, whole=1.0) == 1.0
    with pytest.raises(UsageError, match="takes no time"):
        amdahl.needed(0.0, whole=0.5)
    with pytest.raises(UsageError, match="Improve a larger part"):
        amdahl.needed(0.0, whole=1.5)


@given(st.lists(st.floats(0.001, 1e3), min_size=1, max_size=5))
def test_shares_add_up(seconds):
    found = amdahl.shares({str(i): v for i, v in enumerate(seconds)})
    assert sum(found.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: amdahl.speedup(1.1, faster=2), "between 0 and 1"),
        (lambda: amdahl.speedup(0.5, faster=0), "above 0"),
        (lambda: amdahl.shares({"a": 0.0}), "nothing to divide"),
        (lambda: amdahl.needed(0.5, whole=0), "above 0"),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    with pytest.raises(UsageError, match=message):
        call()
