"""The figures about splitting draw what they are given and survive missing data."""

from __future__ import annotations

import pytest

from turbo_lab.report.plots.tensor_parallel import plot_gain, plot_kept, plot_step_parts

pytest.importorskip("matplotlib.pyplot")


def words(ax) -> list[str]:
    return [t.get_text() for t in ax.texts]


def legend(ax) -> list[str]:
    return [t.get_text() for t in ax.get_legend().get_texts()]


def test_parts_of_a_step_stand_one_behind_the_other() -> None:
    forecast = {"products": 0.020, "exchange": 0.005}
    rows = {"decode": {"forecast": forecast, "measured": {"step": 0.027}, "other": None}}
    ax = plot_step_parts(rows, bands={"decode": {"forecast": (0.022, 0.030)}})
    bars = [(p.get_x(), p.get_width()) for p in ax.patches if p.get_width()]
    assert (0.0, 20.0) in bars and (20.0, 5.0) in bars and (0.0, 27.0) in bars
    assert {"decode", "25 ms", "27 ms", "unmeasured"} <= set(words(ax))
    assert legend(ax) == ["products", "exchange", "step"]
    assert list(ax.lines[0].get_xdata()) == [22.0, 30.0]


def test_nothing_measured_is_still_a_figure() -> None:
    assert "unmeasured" in words(plot_step_parts({"decode": {"measured": None}}))
    assert plot_step_parts({}).get_xlabel()


def test_what_is_kept_leaves_the_even_split_where_heads_run_out() -> None:
    ax = plot_kept({"3 heads": {1: 1, 3: 1 / 3, 9: 1 / 3}}, ylabel="share")
    even, curve = ax.lines
    assert list(even.get_ydata()) == [1, pytest.approx(1 / 9)]
    assert list(curve.get_ydata()) == [1, pytest.approx(1 / 3), pytest.approx(1 / 3)]
    assert legend(ax)[0].startswith("even split")


def test_the_line_between_gain_and_loss_is_one() -> None:
    ax = plot_gain(
        {"8B": [(1e-6, 5.0), (1e-4, 0.6)], "70B": []}, xlabel="s", marks={"here": 1e-5}, ideal=8.0
    )
    assert [1, 1] in [list(line.get_ydata()) for line in ax.lines]
    assert {"here", "free exchange"} <= set(words(ax)) and legend(ax) == ["8B", "70B: unmeasured"]
    assert ax.get_ylim()[1] > 8
