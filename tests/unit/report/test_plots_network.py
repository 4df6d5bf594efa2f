"""Figures of the network lesson draw what they are given."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib")
import matplotlib as mpl

mpl.use("Agg")

from turbo_lab.report.plots.network import plot_bandwidth, plot_cost, plot_gain

POINTS = [(1024.0, 1e-4), (65536.0, 6e-4), (4194304.0, 4e-2)]


def test_held_out_sizes_are_hollow_and_curves_have_their_points_colour() -> None:
    ax = plot_cost({"a": POINTS}, {"a": lambda x: 1e-4 + 1e-8 * x}, held_out=[65536])
    dots = {len(line.get_xdata()): line for line in ax.lines if line.get_linestyle() == "None"}
    assert dots[1].get_markerfacecolor() == "white" and dots[2].get_markerfacecolor() != "white"
    curve = next(line for line in ax.lines if line.get_linestyle() == "-")
    assert curve.get_color() == dots[2].get_color()
    assert next(iter(ax.get_xticklabels())).get_text() == "1 KiB"
    assert ax.get_xlabel() == "size" and ax.get_ylabel() == "time [ms]"


def test_the_link_and_the_wanted_share_are_lines() -> None:
    ax = plot_bandwidth({"2 ranks": [(1024.0, 1e7), (4096.0, 1.1e8)]}, limit_bytes_s=1.25e8)
    heights = [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == "--"]
    assert heights == pytest.approx([0.125, 0.10625])
    assert {text.get_text() for text in ax.texts} == {"the link", "85% of it"}


def test_break_even_marks_stand_at_one_and_unreached_ones_are_left_out() -> None:
    points = {"int8": [(1e8, 3.0), (1e9, 0.8)]}
    curves = {"int8": lambda rate: 3e8 / rate, "fp16": lambda rate: 2.0}
    ax = plot_gain(points, curves, marks={"int8": 3e8, "fp16": 1e12})
    marks = [line for line in ax.lines if line.get_marker() == "|"]
    assert [(mark.get_xdata()[0], mark.get_ydata()[0]) for mark in marks] == [(300.0, 1)]


def test_nothing_measured_still_draws() -> None:
    assert plot_gain({}, {"int8": lambda rate: 1.0}).get_legend() is not None
    assert plot_cost({}, {}).get_ylabel() == "time [ms]"
