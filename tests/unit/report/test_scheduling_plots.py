"""The scheduling figures draw what they are given and survive missing data."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.experiment.knees import LoadPoint
from turbo_lab.metrics.timeline import Chunk, Timeline
from turbo_lab.report.plots.scheduling import (
    plot_gantt,
    plot_groups,
    plot_load_law,
    plot_over_users,
    plot_pauses,
    seats_of,
)

plt = pytest.importorskip("matplotlib.pyplot")


def run(sent: float, *times: float) -> Timeline:
    return Timeline(
        sent_s=sent, status_code=200, chunks=tuple(Chunk(t, 1) for t in times),
        finish_reason="length", saw_done=True, closed_s=times[-1] if times else sent,
    )  # fmt: skip


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0.1, 20)), min_size=1, max_size=30))
def test_no_two_requests_overlap_on_a_seat(spans: list[tuple[float, float]]) -> None:
    runs = [run(start, start + length) for start, length in spans]
    seats = seats_of(runs)
    for seat in set(seats):
        held = sorted((s, s + n) for (s, n), at in zip(spans, seats, strict=True) if at == seat)
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(held))
    starts = sorted(s for s, _ in spans)
    most = max(sum(s <= t < s + n for s, n in spans) for t in starts)
    assert max(seats) + 1 <= most + sum(a == b for a, b in pairwise(starts))


def test_gantt_has_a_waiting_and_a_writing_bar_per_request() -> None:
    ax = plot_gantt({"static": [run(5, 6, 8), run(5, 6, 7), run(8, 9, 10)], "continuous": []})
    widths = sorted(round(bar.get_width(), 6) for bar in ax.patches)
    assert widths == [1, 1, 1, 1, 1, 2]
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert labels == ["static", "continuous\nunmeasured"]
    assert any("5.0 s" in t.get_text() for t in ax.texts), "each group starts at 0"


def test_pauses_are_in_ms_with_the_predicted_mark() -> None:
    groups = {"whole": [run(0, 0.1, 0.2, 1.2)], "none": []}
    ax = plot_pauses(groups, predicted_s={"whole": 0.9})
    ys = ax.lines[0].get_ydata()
    assert [round(y) for y in ys] == [100, 1000]
    assert any(list(line.get_ydata()) == [900, 900] for line in ax.lines)
    texts = [t.get_text() for t in ax.get_legend().get_texts()]
    assert "none: unmeasured" in texts


def test_load_law_names_loads_and_rings_knees() -> None:
    points = [LoadPoint(u, 10.0 * u, 1.0 + u) for u in (1, 2, 4)] + [LoadPoint(8, None, None)]
    ax = plot_load_law(points[:3], points, knees={"latency knee": points[1], "other": None})
    assert {t.get_text() for t in ax.texts} == {"1", "2", "4"}
    texts = [t.get_text() for t in ax.get_legend().get_texts()]
    assert "latency knee: 2 users" in texts and not any("other" in t for t in texts)
    unmeasured = plot_load_law(points[:3], [], knees={})
    assert "measured: no data" in [t.get_text() for t in unmeasured.get_legend().get_texts()]


def test_over_users_marks_the_seats_and_says_what_is_missing() -> None:
    lines = {"TTFT": ([(1, 0.1), (16, 1.0)], [(1, 0.1), (16, None)]),
             "TPOT": ([(1, 0.1), (16, 1.0)], [(1, None)])}  # fmt: skip
    ax = plot_over_users(lines, seats=16)
    texts = [t.get_text() for t in ax.get_legend().get_texts()]
    assert texts == ["TTFT", "TPOT: unmeasured"] and "seats" in [t.get_text() for t in ax.texts]


def test_groups_keep_their_colour_over_policies() -> None:
    ax = plot_groups({"a": {"long": [1, 2], "short": [3]}, "b": {"short": [1], "long": []}},
                     xlabel="E2E [s]")  # fmt: skip
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert labels == ["a: long", "a: short", "b: short", "b: long, unmeasured"]
    dots = [line for line in ax.lines if line.get_marker() not in ("None", None)]
    assert dots[1].get_color() == dots[2].get_color() != dots[0].get_color()
