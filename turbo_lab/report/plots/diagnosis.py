"""Figures about finding faults: which source shows which, and where a request's time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Seen = Literal["cause", "consequence", "nothing"]
SIZES: dict[Seen, float] = {"cause": 130, "consequence": 70, "nothing": 18}


def plot_sources(
    seen: Mapping[str, Mapping[str, Seen]],
    *,
    sources: Sequence[str],
    foretold: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One row per fault, one column per source: what that source alone says of it.

    Args:
        seen: fault to source to what it names: the ``cause`` (filled), a true ``consequence``
            alone (hollow), or ``nothing`` (a small cross).
        sources: columns from left to right.
        foretold: fault to the source that was expected to name it; framed.
        ax: where to draw.
    """
    from matplotlib.lines import Line2D

    ax = new_axes(ax, width_in=6.4, height_in=0.3 * len(seen) + 1.5)
    for row, (fault, marks) in enumerate(seen.items()):
        for column, source in enumerate(sources):
            kind = marks.get(source, "nothing")
            face = {"cause": COLOURS[0], "consequence": "none", "nothing": "#999999"}[kind]
            edge = None if kind == "nothing" else COLOURS[0]
            marker = "x" if kind == "nothing" else "o"
            ax.scatter([column], [row], s=SIZES[kind], marker=marker, color=face, edgecolors=edge)
            if (foretold or {}).get(fault) == source:
                ax.scatter([column], [row], s=330, marker="s", facecolors="none",
                           edgecolors=COLOURS[1])  # fmt: skip
    ax.set_xticks(range(len(sources)), sources)
    ax.set_yticks(range(len(seen)), [*seen])
    ax.set(xlim=(-0.6, len(sources) - 0.4), ylim=(len(seen) - 0.4, -0.6))
    ax.grid(alpha=0.15)
    legend = [
        Line2D([], [], marker="o", ls="", color=COLOURS[0], label="names the cause"),
        Line2D([], [], marker="o", ls="", color=COLOURS[0], mfc="none", label="a consequence"),
        Line2D([], [], marker="x", ls="", color="#999999", label="nothing"),
    ]
    if foretold:
        legend.append(Line2D([], [], marker="s", ls="", color=COLOURS[1], mfc="none", ms=9,
                             label="foretold"))  # fmt: skip
    ax.legend(handles=legend, frameon=False, fontsize=8, ncols=4, loc="lower center",
              bbox_to_anchor=(0.4, 1.0))  # fmt: skip
    return ax


def plot_places(
    splits: Mapping[str, Mapping[str, float] | None], *, ax: Axes | None = None
) -> Axes:
    """Mean seconds of a request by place, one bar per case; None is named as unmeasured."""
    ax = new_axes(ax, width_in=7.2, height_in=0.42 * len(splits) + 1.2)
    places = [*next((split for split in splits.values() if split), {})]
    for row, split in enumerate(splits.values()):
        left = 0.0
        for colour, place in zip(COLOURS, places, strict=False):
            width = (split or {}).get(place, 0.0)
            ax.barh(row, width, left=left, height=0.62, color=colour,
                    label=place if not row else None)  # fmt: skip
            left += width
        if split is None:
            ax.text(0.0, row, " unmeasured", va="center", fontsize=8)
    ax.set_yticks(range(len(splits)), [*splits])
    ax.invert_yaxis()
    ax.set(xlabel="mean time of a request [s]")
    ax.grid(axis="y", visible=False)
    ax.legend(frameon=False, fontsize=9, ncols=len(places) or 1, loc="lower center",
              bbox_to_anchor=(0.45, 1.0))  # fmt: skip
    return ax
