"""Figures about finding faults show what they are given."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib")

from turbo_lab.report.plots.diagnosis import plot_places, plot_sources

SEEN = {"a": {"log": "cause", "metrics": "nothing"}, "b": {"log": "consequence", "client": "cause"}}
SOURCES = ("log", "metrics", "client")


def test_every_fault_has_a_mark_in_every_column_and_a_frame_where_foretold() -> None:
    ax = plot_sources(SEEN, sources=SOURCES, foretold={"a": "log"})
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]
    assert [t.get_text() for t in ax.get_xticklabels()] == [*SOURCES]
    places = [tuple(dots.get_offsets()[0]) for dots in ax.collections]
    assert sorted(set(places)) == [(x, y) for x in range(3) for y in range(2)]
    assert len(places) == 7 and places.count((0, 0)) == 2
    assert len(plot_sources(SEEN, sources=SOURCES).collections) == 6
    assert "foretold" in [t.get_text() for t in ax.get_legend().get_texts()]


def test_bars_are_as_long_as_their_parts_and_a_missing_one_says_so() -> None:
    ax = plot_places(
        {"x": {"queue": 1.0, "engine": 2.0}, "y": None, "z": {"queue": 0.5, "engine": 0}}
    )
    ends = {bar.get_y() + bar.get_height() / 2: bar.get_x() + bar.get_width() for bar in ax.patches}
    assert ends[0] == pytest.approx(3.0) and ends[2] == pytest.approx(0.5)
    assert "unmeasured" in " ".join(text.get_text() for text in ax.texts)
