"""Figures of notebook 15: what is drawn is what was given."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib")

from turbo_lab.report.plots.papers import (
    plot_claims,
    plot_missing,
    plot_survivors,
    plot_trap_sizes,
)


def test_a_cell_per_paper_and_flag_and_a_count_per_row():
    flags = {"no gpu": (True, False, True), "simulated": (False, False, True)}
    ax = plot_missing(["A", "B", "C"], flags, conditions=1)
    assert len(ax.patches) == 6
    assert [t.get_text() for t in ax.texts] == ["2", "1"]
    colours = [patch.get_facecolor() for patch in ax.patches]
    assert colours[0] == colours[2] != colours[1]  # missing, missing, stated
    assert colours[5] not in (colours[0], colours[1])  # a trap has a colour of its own
    assert [t.get_text() for t in ax.get_xticklabels()] == ["A", "B", "C"]


def test_each_claim_is_a_point_and_the_largest_are_named():
    points = [(1, 4.0, "mainstream", "A"), (5, 29.0, "naive", "B"), (5, 2.0, "naive", "C")]
    ax = plot_claims(points, named=1)
    assert [t.get_text() for t in ax.texts] == ["B"]
    legend = [t.get_text() for t in ax.get_legend().get_texts()]
    assert legend == ["mainstream, n = 1", "naive, n = 2"]
    drawn = [y for line in ax.get_lines() if line.get_marker() != "None" for y in line.get_ydata()]
    assert sorted(drawn) == [2.0, 4.0, 29.0]
    assert ax.get_yscale() == "log"


def test_a_trap_has_both_markers_and_an_unmeasured_one_says_so():
    ax = plot_trap_sizes({"batch": (6.0, 5.5), "precision": (2.0, None)})
    marks = {line.get_marker(): float(line.get_xdata()[0]) for line in ax.get_lines()[1:3]}
    assert marks == {"o": 5.5, "D": 6.0}
    assert [t.get_text() for t in ax.texts] == ["5.50x", "unmeasured"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["batch", "precision"]


def test_survivors_start_at_the_fastest_and_end_at_the_percentile_of_all():
    ax = plot_survivors([4.0, 1.0, 3.0, 2.0], p=50, timeout_s=2.5)
    whole, flattered = ax.get_lines()[:2]
    assert set(whole.get_ydata()) == {2.5}
    assert list(flattered.get_xdata())[:4] == [1.0, 2.0, 3.0, 4.0]
    assert list(flattered.get_ydata()) == [1.0, 1.5, 2.0, 2.5, 2.5]


def test_nothing_measured_is_said():
    assert plot_survivors([], p=90).texts[0].get_text() == "unmeasured"
