"""Rows of a survey: the slowest rank counts, passes stay apart, small sizes get more calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.parallel.survey import CALLS, Surveyed, by_pass, calls_of, survey, survey_rows


def row(number: int, ranks: int, *samples_s: float, wrong: int = 0) -> dict[str, object]:
    return {
        "pass_number": number, "kind": "all_reduce", "ranks": ranks, "size_bytes": 4096,
        "time_s": sum(samples_s) / len(samples_s), "samples_s": list(samples_s), "wrong": wrong,
        "how": "",
    }  # fmt: skip


def test_rows_of_all_ranks_become_one() -> None:
    ranks = [
        [row(0, 2, 1.0, 3.0, 1.0), row(0, 3, 5.0), row(1, 2, 4.0)],
        [row(0, 2, 2.0, 1.0, 1.0, wrong=1), row(0, 3, 5.0), row(1, 2, 6.0)],
        [row(0, 3, 7.0)],
    ]
    found = survey_rows(ranks)
    assert found == [
        Surveyed("all_reduce", 2, 0, 4096, 2.0, 3, 1),  # slowest of each call: 2, 3, 1
        Surveyed("all_reduce", 3, 0, 4096, 7.0, 1, 0),
        Surveyed("all_reduce", 2, 1, 4096, 6.0, 1, 0),
    ]
    first, second = by_pass(found)
    assert [one.ranks for one in first] == [2, 3] and [one.seconds for one in second] == [6.0]
    assert Surveyed.from_dict(found[0].to_dict()) == found[0]


@given(st.integers(0, 10**9))
def test_calls_never_leave_their_bounds(size: int) -> None:
    assert CALLS[0] <= calls_of(size) <= CALLS[1]
    assert calls_of(size) >= calls_of(2 * size)


def test_nonsense_is_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="2 or more ranks"):
        survey(ranks=(1, 2))
    with pytest.raises(UsageError, match="no collective 'all_reduc'"):
        survey(kinds=("all_reduc",))
