"""Held-out error beside A/A noise: planted costs, planted noise, passes that do not match."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.network.accuracy import accuracy_text, held_out_accuracy, together
from turbo_lab.network.cost import MessageCost, Network, collective_s
from turbo_lab.network.fitted import MeasuredCollective

PLANTED = MessageCost(3e-5, (2e-9, 8.5e-9), (65536.0,))
SIZES = [1024 * 2**k for k in range(15)]


def one_pass(factor: float = 1.0, *, sizes: list[int] = SIZES) -> list[MeasuredCollective]:
    return [
        MeasuredCollective(
            "all_reduce", n, size,
            factor * collective_s("all_reduce", size, network=Network.flat(n, PLANTED)),
        )
        for n in (2, 3)
        for size in sizes
    ]  # fmt: skip


def test_equal_passes_leave_only_the_error_of_the_model() -> None:
    rows = held_out_accuracy([one_pass(), one_pass()])
    assert [(row.kind, row.ranks, len(row.errors)) for row in rows] == [
        ("all_reduce", 2, 14), ("all_reduce", 3, 14),
    ]  # fmt: skip
    assert all(row.same_again == 0 and row.median < 0.02 and row.within() for row in rows)


@settings(max_examples=8)  # each fits eight curves
@given(st.floats(1.2, 3.0))
def test_a_pass_that_is_slower_shows_as_noise_and_sets_the_limit(slower: float) -> None:
    whole = together(held_out_accuracy([one_pass(), one_pass(slower)]))
    shares = sorted([slower - 1, 1 - 1 / slower])
    assert shares[0] - 0.02 <= whole.same_again <= shares[1] + 0.02
    assert whole.within(0.01, times_noise=1.2)
    assert not whole.within(0.01, times_noise=0.1)


def test_a_model_that_misses_the_middle_is_told_so() -> None:
    """Two sizes are all that is left to fit on: a line through the ends."""
    rows = held_out_accuracy([one_pass(sizes=SIZES[::7]), one_pass(sizes=SIZES[::7])])
    assert all(not row.within() for row in rows)
    text = accuracy_text(rows)
    assert text.splitlines()[1].endswith("no") and "all" in text.splitlines()[3]


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(UsageError, match="1 passes"):
        held_out_accuracy([one_pass()])
    with pytest.raises(UsageError, match="the same three or more sizes"):
        held_out_accuracy([one_pass(), one_pass(sizes=SIZES[1:])])
    with pytest.raises(UsageError, match="no rows"):
        together([])
