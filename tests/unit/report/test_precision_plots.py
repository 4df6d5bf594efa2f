from __future__ import annotations

from itertools import pairwise

import pytest

from turbo_lab.experiment.quality_paired import PairedDifference
from turbo_lab.experiment.quality_table import QualityRow, TextQuality
from turbo_lab.report.plots.precision import (
    plot_damage,
    plot_grids,
    plot_number_lines,
    plot_quality,
    plot_relative_error,
    plot_speed,
)

pytest.importorskip("matplotlib")


def row(name: str, kl: float, size: int) -> QualityRow:
    found = PairedDifference(kl, 0.0, kl * 1.2, 0.0, kl, 20)
    return QualityRow(name, TextQuality(found, found, found, 640), None, None, size, 400)


def drawings():
    yield plot_number_lines(["fp8_e5m2", "int4", "nf4"])
    yield plot_relative_error(["fp16", "fp8_e4m3", "int4"])
    yield plot_grids({"edges": [-2.0, 0.0, 2.0], "shares": [0.5, 0.5]}, {"a": [-1.0, 0.0, 9.0]})
    yield plot_quality([row("x", 1e-5, 100), row("y", 0.3, 50)], groups={"g": ["x", "y", "z"]})
    yield plot_damage({"block 0": 0.1, "block 1": -0.01}, chosen=["block 0"])
    yield plot_speed({"bf16": [40.0, 39.0], "int4": []}, predicted={"int4": 50.0},
                     by_bits={"int4": 160.0})  # fmt: skip


def test_every_figure_says_what_its_axis_counts() -> None:
    for ax in drawings():
        assert ax.get_xlabel()


def test_every_value_of_a_format_is_drawn_once() -> None:
    ax = plot_number_lines(["int4", "fp8_e4m3"])
    lines = [line.get_xdata() for line in ax.get_lines()]
    assert sorted(len(values) for values in lines) == [7, 126]
    assert max(max(v) for v in lines) == 448 and min(len(v) for v in lines) == 7


def test_a_cross_marks_where_a_format_overflows() -> None:
    ax = plot_relative_error(["fp16", "bf16"])
    crosses = [line for line in ax.get_lines() if line.get_marker() == "x"]
    assert len(crosses) == 1 and 6e4 < crosses[0].get_xdata()[0] <= 65504


def test_only_points_in_view_are_drawn_and_counted() -> None:
    ax = plot_grids({"edges": [-2.0, 0.0, 2.0], "shares": [0.5, 0.5]}, {"a": [-1.0, 0.0, 9.0]})
    assert "2 of 3 points in view" in ax.texts[0].get_text()


def test_what_was_not_measured_says_so() -> None:
    ax = plot_speed({"bf16": [40.0], "int4": []}, predicted={})
    assert [t.get_text() for t in ax.texts] == ["unmeasured"]
    assert len(ax.patches) == 1


def test_labels_of_neighbours_do_not_lie_on_each_other() -> None:
    rows = [row(name, kl, 113) for name, kl in (("a", 0.32), ("b", 0.33), ("c", 0.41), ("d", 9.0))]
    ax = plot_quality(rows, groups={"g": ["a", "b", "c", "d"]})
    heights = sorted(text.xyann[1] for text in ax.texts)
    assert len(heights) == 4
    assert all(b / a >= 1.5 for a, b in pairwise(heights))
    assert heights[-1] == 9.0
