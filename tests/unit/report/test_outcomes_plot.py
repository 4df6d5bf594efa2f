"""The figure of all predictions: one mark per ratio, held and missed told apart."""

from __future__ import annotations

from turbo_lab.records.schema import ComparisonRow
from turbo_lab.report.plots.outcomes import LIMITS, plot_outcomes


def row(ratio: float | None, verdict: str = "met") -> ComparisonRow:
    return ComparisonRow(
        name="x", unit="s", predicted=1.0, measured=ratio, published=None, published_claim=None,
        ratio=ratio, tolerance=0.1, band=None, verdict=verdict, reason=None, n=1,
    )  # fmt: skip


def test_each_ratio_is_a_mark_in_its_notebooks_row():
    rows = {"00": [row(1.0), row(2.0, "not met")], "01": [row(None, "unmeasured"), row(0.5)]}
    ax = plot_outcomes(rows)
    marks = [line for line in ax.lines if line.get_marker() in ("o", "<", ">")]
    assert sorted(float(line.get_xdata()[0]) for line in marks) == [0.5, 1.0, 2.0]
    faces = {float(m.get_xdata()[0]): m.get_markerfacecolor() for m in marks}
    assert faces[2.0] == "none" and faces[1.0] != "none"
    places = {float(m.get_xdata()[0]): float(m.get_ydata()[0]) for m in marks}
    assert abs(places[1.0]) < 0.5 and abs(places[0.5] - 1) < 0.5
    assert [label.get_text() for label in ax.get_yticklabels()] == ["00", "01"]


def test_a_ratio_beyond_the_axis_is_an_arrow_at_its_edge():
    ax = plot_outcomes({"00": [row(1e-3), row(1e3)]})
    found = {line.get_marker(): float(line.get_xdata()[0]) for line in ax.lines[:2]}
    assert found == {"<": LIMITS[0], ">": LIMITS[1]}
