"""Figures of notebook 12 show what they are given."""

from __future__ import annotations

import pytest

from turbo_lab.estimate.handover import HandoverCost
from turbo_lab.estimate.prefill import PrefillLaw
from turbo_lab.models.catalog import load_model
from turbo_lab.report.plots import disagg as plots

COST = HandoverCost(PrefillLaw(load_model("smollm2-135m").spec(), 0.015, 5e-12, 6e-12), 46_080, 128)


def test_the_longest_gap_of_each_run_is_in_the_legend() -> None:
    runs = [plots.Gaps("together", (0.0, 0.1, 0.2), (0.1, 2.2, 0.1), (False, True, False)),
            plots.Gaps("alone", (0.0, 0.1), (0.1, 0.3), (False, False))]  # fmt: skip
    legend = [t.get_text() for t in plots.plot_gaps(runs).get_legend().get_texts()]
    assert legend[:2] == ["together: longest 2.20 s", "alone: longest 0.30 s"]


def test_links_and_points_stand_beside_the_lines() -> None:
    ax = plots.plot_least_links([256, 1024], {"here": [2e7, 1e7]}, links={"a": 1e9, "b": 2e9},
                                points={"measured": (512, 1.5e7)})  # fmt: skip
    assert ax.get_yscale() == "log" and len(ax.lines) == 1 + 2 + 1


def test_both_ways_are_drawn_where_they_cross() -> None:
    way = plots.Ways("641 tokens", lambda rate: COST.transfer_s(641, bandwidth_bytes_s=rate),
                     COST.recompute_s(641), COST.break_even_bytes_s(641),
                     {2e7: [1.5, 1.6], 6e7: [0.6]}, [0.85])  # fmt: skip
    ax = plots.plot_ways([way])
    dotted = next(line for line in ax.lines if line.get_linestyle() == ":")
    assert dotted.get_xdata()[0] == pytest.approx(8e-6 * COST.break_even_bytes_s(641))
