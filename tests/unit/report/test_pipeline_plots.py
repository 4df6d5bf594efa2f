"""The figures about pipelines and experts draw what they are given and survive missing data."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib.pyplot")

from turbo_lab.report.plots.pipeline import (
    plot_idle,
    plot_kept,
    plot_latency_throughput,
    plot_layout_bytes,
    plot_loads,
    plot_schedules,
    plot_skew_cost,
)

ROWS = [(0, 0, "forward", 0, 5.0, 6.0), (1, 0, "forward", 0, 6.0, 8.0),
        (1, 0, "backward", 0, 8.0, 9.0)]  # fmt: skip


def texts(ax) -> list[str]:
    return [t.get_text() for t in ax.texts]


def test_a_schedule_starts_at_its_first_task_and_hatches_the_way_back() -> None:
    ax = plot_schedules({"GPipe": ROWS, "1F1B": []}, stages=2)
    boxes = [p for p in ax.patches if p.get_zorder() == 2]
    assert [(b.get_x(), b.get_width()) for b in boxes] == [(0.0, 1.0), (1.0, 2.0), (3.0, 1.0)]
    assert [bool(b.get_hatch()) for b in boxes] == [False, False, True]
    assert "1F1B: unmeasured" in texts(ax) and texts(ax).count("1") == 3
    assert [t.get_text() for t in ax.get_yticklabels()] == ["stage 0", "stage 1"] * 2


def test_idle_shares_are_percent_with_every_pass() -> None:
    ax = plot_idle({"prefill": {1: 0.5, 2: 1 / 3}}, {"prefill": {1: 0.52}},
                   {"prefill": {1: [0.5, 0.51], 2: [0.3]}, "decode": {}})  # fmt: skip
    dashed, diamonds, dots = ax.lines[:3]
    assert list(dashed.get_ydata()) == pytest.approx([50, 100 / 3])
    assert list(diamonds.get_ydata()) == [52] and list(dots.get_ydata()) == [50, 51, 30]
    assert "decode: unmeasured" in [t.get_text() for t in ax.get_legend().get_texts()]


def test_kept_activations_have_a_bar_per_stage_and_their_prediction() -> None:
    mib = 2**20
    ax = plot_kept({"GPipe": [4 * mib, 3 * mib]}, {"GPipe": [4 * mib, 3 * mib], "1F1B": [mib, mib]})
    assert [p.get_height() for p in ax.patches] == [4, 3]  # 1F1B is unmeasured
    assert [list(line.get_ydata()) for line in ax.lines] == [[4, 1], [3, 1]]


def test_latency_and_throughput_carry_their_names() -> None:
    ax = plot_latency_throughput({"alone": (0.02, 50), "m = 2": (0.03, 70)}, alone="alone")
    assert texts(ax) == ["alone", "m = 2"]
    assert list(ax.lines[-1].get_xdata()) == [20, 20]
    assert plot_latency_throughput({}, alone="alone") is not None


def test_loads_tell_the_fullest_expert_and_rank() -> None:
    ax = plot_loads({"even": [2, 2, 2, 2], "skewed": [6, 2, 0, 0]}, ranks=2)
    assert texts(ax) == ["expert 1.00\nrank 1.00", "expert 3.00\nrank 2.00"]
    colours = [p.get_facecolor() for p in ax.patches[:4]]
    assert colours[0] == colours[1] != colours[2] == colours[3]


def test_skew_against_time_has_the_line_of_the_prediction() -> None:
    ax = plot_skew_cost({"even": (1.0, [1.0, 1.1]), "skewed": (1.5, []), "one": (2.0, [1.9])})
    assert list(ax.lines[0].get_xdata()) == list(ax.lines[0].get_ydata())
    assert texts(ax) == ["even", "one"]  # a label only where something was measured


def test_layout_bytes_are_kib() -> None:
    ax = plot_layout_bytes({"tensor": 2048.0, "experts": 1024.0}, {"tensor": 2048.0})
    assert [p.get_width() for p in ax.patches] == [2.0]
    assert [line.get_xdata()[0] for line in ax.lines] == [2.0, 1.0]
