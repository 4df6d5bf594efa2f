"""The figures about guessing draw what they are given and survive missing data."""

from __future__ import annotations

import numpy as np
import pytest

from turbo_lab.estimate.verification import VerifyCost, free
from turbo_lab.report.plots.speculation import (
    MapPoint,
    plot_break_even,
    plot_check_cost,
    plot_crowds,
    plot_forecasts,
    plot_positions,
)

pytest.importorskip("matplotlib.pyplot")
COST = VerifyCost.from_ratios({1: 1.2, 10: 2.5})


def texts(ax) -> list[str]:
    return [t.get_text() for t in ax.texts]


def test_the_cost_of_a_check_lies_between_free_and_a_step_per_token() -> None:
    ax = plot_check_cost({0: 1, 3: 1.4, 10: 2.4}, {10: [2.2, 2.3]})
    assert list(ax.lines[0].get_ydata()) == [1, 1.4, 2.4]
    assert list(ax.lines[1].get_ydata()) == [2.2, 2.3]
    assert [list(line.get_ydata()) for line in ax.lines[2:]] == [[1, 1], [1, 11]]
    missing = plot_check_cost({}, {})
    assert "checking steps: unmeasured" in [t.get_text() for t in missing.get_legend().get_texts()]


def test_the_break_even_line_is_where_the_formula_says() -> None:
    point = MapPoint("copy", 0.9, 5, 2.0, 1.9)
    ax = plot_break_even([point], draft_cost=0.1, verify_cost=COST, lengths=range(1, 11))
    assert any("copy 2.00 (1.90)" in text for text in texts(ax))
    line = ax.collections[1].get_paths()[0].vertices
    from turbo_lab.estimate.speculation import break_even_acceptance

    for k in (2, 5, 9):
        alpha = break_even_acceptance(k, draft_cost=0.1, verify_cost=COST)
        nearest = line[np.argmin(np.abs(line[:, 1] - k))]
        assert nearest[0] == pytest.approx(alpha, abs=0.02)


def test_many_points_get_a_legend_instead_of_names() -> None:
    points = [MapPoint(kind, 0.5, k, 1.1, 1.0) for kind in ("copy", "prose") for k in range(1, 6)]
    ax = plot_break_even(points, draft_cost=0.1, verify_cost=COST, lengths=range(1, 11))
    assert texts(ax) == []
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["copy", "prose"]


def test_a_map_without_a_break_even_has_no_line() -> None:
    ax = plot_break_even([], draft_cost=0.0, verify_cost=free, lengths=[1, 2])
    assert len(ax.collections) == 1, "the ground alone: free guesses never lose"


def test_forecasts_are_bars_from_one_with_a_diamond() -> None:
    rows = {"ngram 10": {"copy": (3.0, 2.8), "prose": (0.7, 0.6)}, "draft 3": {"copy": (0.9, None)}}
    ax = plot_forecasts(rows, noise=0.05)
    bars = [(round(b.get_x(), 6), round(b.get_width(), 6)) for b in ax.patches[:2]]
    assert bars == [(1, 1.8), (1, -0.4)]
    assert [t.get_text() for t in ax.get_yticklabels()] == [
        "ngram 10: copy", "ngram 10: prose", "draft 3: copy",
    ]  # fmt: skip
    assert texts(ax) == ["2.80", "0.60", "unmeasured"]
    diamonds = [line.get_xdata()[0] for line in ax.lines[:3]]
    assert diamonds == [3.0, 0.7, 0.9]


def test_positions_carry_their_law() -> None:
    ax = plot_positions({"copy": [0.9, 0.8], "none": []}, constant={"copy": 0.5})
    assert list(ax.lines[1].get_ydata()) == pytest.approx([0.5, 0.25])
    assert "none: unmeasured" in [t.get_text() for t in ax.get_legend().get_texts()]


def test_crowds_have_a_colour_per_arm_a_style_per_class_and_hollow_forecasts() -> None:
    rates = {"copy": {"off": {1: 20.0, 8: 100.0}, "draft": {}}, "prose": {"off": {1: 19.0}}}
    ax = plot_crowds(rates, predicted={"copy": {"off": {8: 90.0}}})
    copy_off, forecast, prose_off = ax.lines[0], ax.lines[1], ax.lines[4]
    assert list(copy_off.get_ydata()) == [20, 100]
    assert list(forecast.get_ydata()) == [90]
    assert copy_off.get_color() == prose_off.get_color()
    assert copy_off.get_linestyle() != prose_off.get_linestyle()
    assert "copy, draft: unmeasured" in [t.get_text() for t in ax.get_legend().get_texts()]
    assert list(ax.get_xticks()) == [1, 8]
