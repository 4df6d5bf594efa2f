"""All predictions of the course in one figure: measured over predicted, by notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from turbo_lab.records.schema import ComparisonRow
from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LIMITS = (1 / 16, 16.0)  # a ratio beyond is drawn at the edge, as an arrow
SPREAD = 0.28  # marks of one row are moved apart by at most this much of a row


def plot_outcomes(rows: Mapping[str, Sequence[ComparisonRow]], *, ax: Axes | None = None) -> Axes:
    """One row of marks per notebook, first on top; the x axis is logarithmic.

    ``rows``: label to the notebook's comparison. A mark is filled when the prediction was met.
    Rows without a positive ratio (nothing measured, or zero predicted) have no mark.
    """
    ax = new_axes(ax)
    for place, comparison in enumerate(rows.values()):
        shown = [row for row in comparison if row.ratio is not None and row.ratio > 0]
        for number, row in enumerate(shown):
            x, marker = _clipped(float(row.ratio or 0.0))
            y = place + SPREAD * (2 * (number + 0.5) / len(shown) - 1)
            met = row.verdict == "met"
            colour = COLOURS[0] if met else COLOURS[1]
            face = colour if met else "none"
            ax.plot(x, y, marker, ms=4.5, mfc=face, mec=colour, mew=1.2, alpha=0.9)
    ax.axvline(1, color="0.4", lw=1, zorder=0)
    ax.set_xscale("log")
    ticks = (1 / 16, 1 / 4, 1 / 2, 1, 2, 4, 16)
    ax.set_xticks(ticks, ["1/16", "1/4", "1/2", "1", "2", "4", "16"])
    ax.minorticks_off()
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set(
        xlabel="measured / predicted", ylabel="notebook", xlim=(LIMITS[0] / 1.2, LIMITS[1] * 1.2)
    )
    ax.set_ylim(len(rows) - 0.5, -0.5)
    return ax


def _clipped(ratio: float) -> tuple[float, str]:
    low, high = LIMITS
    if ratio < low:
        return low, "<"
    return (high, ">") if ratio > high else (ratio, "o")
