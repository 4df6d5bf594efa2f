"""Fits over collectives: planted costs are foretold, also for ranks that were not measured."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.network.cost import MessageCost, Network, collective_s
from turbo_lab.network.fitted import (
    MeasuredCollective,
    compare_per_message,
    fit_collectives,
    fit_per_message,
    held_out_collectives,
)

PLANTED = MessageCost(3e-5, (2e-9, 8.5e-9), (65536.0,))
SIZES = [12 * 2**k for k in range(6, 21)]


def measured(
    *ranks: int, kind: str = "all_reduce", spread: float = 0.0
) -> list[MeasuredCollective]:
    rows = []
    for n in ranks:
        for size in SIZES:
            seconds = collective_s(kind, size, network=Network.flat(n, PLANTED))
            rows += [MeasuredCollective(kind, n, size, seconds * (1 + sign * spread))
                     for sign in ((-1, 1) if spread else (0,))]  # fmt: skip
    return rows


def test_held_out_sizes_of_a_planted_cost_are_foretold() -> None:
    rows = measured(2, 3, 4) + measured(3, kind="all_gather")
    found = held_out_collectives(rows)
    assert found.points == 4 * 7 and found.median < 0.02 and found.noise is None
    curves = fit_collectives(rows)
    expected = collective_s("all_reduce", 500_000, network=Network.flat(3, PLANTED))
    assert curves.seconds("all_reduce", 500_000, ranks=3) == pytest.approx(expected, rel=0.05)


def test_noise_of_repeats_is_the_limit_where_it_is_larger() -> None:
    found = held_out_collectives(measured(2, spread=0.2))
    assert found.noise == pytest.approx(0.4 / 0.8)
    assert found.within(0.01)


def test_one_curve_foretells_other_numbers_of_ranks() -> None:
    cost = fit_per_message(measured(2, 3))
    unseen = measured(4) + measured(4, kind="all_to_all")
    assert compare_per_message(cost, unseen).median < 0.03


def test_what_was_not_measured_is_refused() -> None:
    curves = fit_collectives(measured(2))
    with pytest.raises(
        UsageError, match="over 4 ranks was not measured; measured: all_reduce over 2"
    ):
        curves.seconds("all_reduce", 1000, ranks=4)
    with pytest.raises(UsageError, match="has 2 sizes; holding some out needs three"):
        held_out_collectives(measured(2)[:2])
    with pytest.raises(UsageError, match="no measured collectives"):
        fit_collectives([])
