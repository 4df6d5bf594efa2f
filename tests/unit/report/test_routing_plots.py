"""Figures of notebook 14: what is drawn is what was given."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib")

from turbo_lab.report.plots.routing import (
    plot_first_tokens,
    plot_forecast_ratios,
    plot_replicas,
    plot_tails,
)


def test_forecasts_have_one_marker_per_known_figure_and_name_the_unknown():
    ratios = {"half": {"TTFT": 1.1, "TPOT": 0.9}, "full": {"TTFT": None, "TPOT": 1.2}}
    ax = plot_forecast_ratios(ratios, aims={"TTFT": 0.15, "TPOT": 0.1})
    drawn = [float(line.get_xdata()[0]) for line in ax.get_lines() if line.get_marker() != "None"]
    assert sorted(drawn) == [0.9, 1.1, 1.2]
    assert [t.get_text() for t in ax.texts] == ["unmeasured"]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        "TTFT, aim ±15%",
        "TPOT, aim ±10%",
    ]


def test_a_tail_starts_at_all_requests_and_ends_at_the_slowest():
    ax = plot_tails({"a": [4.0, 1.0, 2.0, 3.0], "b": [1.0] * 100}, xlabel="s", limit=2.0)
    line = ax.get_lines()[0]
    assert list(line.get_xdata()) == [1.0, 2.0, 3.0, 4.0]
    assert list(line.get_ydata()) == [100, 75, 50, 25]


def test_replicas_count_from_one():
    ax = plot_replicas({"a": [0.2, 0.9], "b": [0.5]}, attain=0.9)
    assert list(ax.get_lines()[0].get_xdata()) == [1, 2]
    assert list(ax.get_lines()[0].get_ydata()) == [20.0, 90.0]


def test_first_tokens_are_one_marker_a_request_and_the_unmeasured_is_named():
    ax = plot_first_tokens({"simulated": [1.0, 0.1], "measured": [1.2, 0.2]}, title="a", opening=1)
    assert [len(drawn.get_offsets()) for drawn in ax.collections] == [2, 2]
    assert ax.collections[1].get_offsets()[1].tolist() == [2.0, 0.2]
    assert ax.get_lines()[0].get_xdata()[0] == 1.5
    ax = plot_first_tokens({"simulated": [1.0], "measured": []}, title="b")
    assert "measured: unmeasured" in [t.get_text() for t in ax.get_legend().get_texts()]
