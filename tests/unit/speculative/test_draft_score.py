"""Agreement and the acceptance that follows from it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.speculative.draft_score import accepted_by_position, agreement

HITS = st.lists(st.lists(st.booleans(), min_size=2, max_size=40), min_size=1, max_size=8)


def test_agreement_pools_places_and_resamples_replies() -> None:
    found = agreement([[True] * 30, [False] * 10])
    assert (found.share, found.places, found.replies) == (0.75, 40, 2)
    assert found.low == 0.0 and found.high == 1.0  # two replies say little
    many = agreement([[True, False, True, True]] * 200)
    assert many.low == many.high == many.share == 0.75
    assert str(many) == "75.0% [75.0%, 75.0%]" and many.as_dict()["places"] == 800
    with pytest.raises(UnmeasuredError, match="no reply"):
        agreement([[]])


def test_accepted_by_position_of_known_steps() -> None:
    # place 0 comes from the prompt's step; then: right right wrong | right, end
    assert accepted_by_position([[False, True, True, False, True]], draft_tokens=2) == [1.0, 0.5]
    assert accepted_by_position([[True, False, False, False]], draft_tokens=3) == [0, 0, 0]
    with pytest.raises(UsageError, match="draft_tokens is 0"):
        accepted_by_position([[True, True]], draft_tokens=0)
    with pytest.raises(UnmeasuredError, match="longer than one"):
        accepted_by_position([[True]], draft_tokens=1)


@given(HITS, st.integers(1, 6))
def test_guesses_are_accepted_from_the_front(hits: list[list[bool]], length: int) -> None:
    shares = accepted_by_position(hits, draft_tokens=length)
    assert len(shares) == length and all(a >= b for a, b in pairwise([1.0, *shares, 0.0]))
    perfect = accepted_by_position([[True] * (1 + 4 * (length + 1))], draft_tokens=length)
    assert perfect == [1.0] * length  # four whole steps


@given(st.lists(st.booleans(), min_size=2, max_size=60))
def test_one_guess_is_accepted_as_often_as_it_is_asked_and_right(row: list[bool]) -> None:
    asked, at = [], 1
    while at < len(row):
        asked.append(row[at])
        at += 2 if row[at] else 1
    assert accepted_by_position([row], draft_tokens=1) == [sum(asked) / len(asked)]
