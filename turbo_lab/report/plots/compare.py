"""Figures of several runs: throughput against latency with its knees, and the forest plot."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turbo_lab.experiment.knees import LoadPoint
from turbo_lab.report.plots.bench import time_unit
from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FLOOR = "#d5d8dd"


def plot_load_curve(
    points: Sequence[LoadPoint],
    *,
    latency_knee: LoadPoint | None = None,
    memory_knee: LoadPoint | None = None,
    no_memory_knee: str = "none in this range",
    others: Sequence[LoadPoint] = (),
    latency_label: str = "end-to-end latency, median",
    ax: Axes | None = None,
) -> Axes:
    """Throughput (x, tok/s) against latency (y), each point named by its load.

    Args:
        points: one per load, in the order of the load.
        latency_knee: marked by a square.
        memory_knee: marked by a diamond.
        no_memory_knee: what the legend says when there is none.
        others: further runs at the same loads, drawn pale.
        latency_label: of the y axis, without its unit.
        ax: where to draw.
    """
    ax = new_axes(ax)
    known = [p for p in points if _drawable(p)]
    unit, scale = time_unit([p.latency_s or 0.0 for p in (*known, *others)])
    for p in filter(_drawable, others):
        ax.plot([p.throughput_tok_s], [p.latency_s * scale], "o", color=COLOURS[0], ms=4, alpha=0.3)
    shown = [(p.throughput_tok_s, p.latency_s * scale) for p in known]
    ax.plot([x for x, _ in shown], [y for _, y in shown], "o-", color=COLOURS[0])
    for point, place in zip(known, shown, strict=True):
        ax.annotate(f"{point.load:g}", place, xytext=(-7, 7), ha="right",
                    textcoords="offset points", fontsize=8.5,
                    bbox={"fc": "white", "ec": "none", "alpha": 0.7, "pad": 0.5})  # fmt: skip
    knees = (("latency knee", latency_knee, "s", 1, "none in this range"),
             ("memory knee", memory_knee, "D", 2, no_memory_knee))  # fmt: skip
    for name, knee, marker, colour, why_not in knees:
        look = {"color": COLOURS[colour], "ls": "none", "marker": marker, "mfc": "none",
                "ms": 12 if marker == "s" else 9, "mew": 2}  # fmt: skip
        if knee is not None and _drawable(knee):
            place = [knee.throughput_tok_s], [knee.latency_s * scale]
            ax.plot(*place, **look, label=f"{name}: load {knee.load:g}")
        else:
            ax.plot([], [], ls="none", label=f"{name}: {why_not}")
    ax.set(xlabel="output tokens per second", ylabel=f"{latency_label} in {unit}")
    ax.margins(x=0.06, y=0.15)
    ax.set_xlim(0, None)
    ax.set_ylim(0, None)
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0))
    return ax


def _drawable(point: LoadPoint) -> bool:
    return point.throughput_tok_s is not None and point.latency_s is not None


@dataclass(frozen=True)
class ForestRow:
    """One comparison in the forest plot; all numbers relative (0.2 is 20 %)."""

    label: str
    effect: float | None
    interval: tuple[float, float] | None
    noise_floor: float | None
    verdict: str


def plot_forest(
    rows: Sequence[ForestRow], *, metric: str = "", lower_is_better: bool | None = None,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Effect and interval of each comparison against its noise floor; 0 is no difference.

    ``metric`` and its direction, where all rows have the same, are told by the axis.
    """
    ax = new_axes(ax, height_in=1.2 + 0.45 * len(rows))
    for height, row in zip(itertools.count(len(rows) - 1, -1), rows, strict=False):
        if row.noise_floor is not None:
            span = 100 * row.noise_floor
            ax.barh(height, 2 * span, left=-span, height=0.7, color=FLOOR, zorder=0)
        if row.effect is None or row.interval is None:
            ax.text(0, height, "no data", ha="center", va="center", fontsize=9)
            continue
        colour = {"better": COLOURS[2], "worse": COLOURS[1]}.get(row.verdict, COLOURS[0])
        low, high = (100 * end for end in row.interval)
        ax.plot([low, high], [height, height], "-", color=colour, lw=2)
        ax.plot([low, high], [height, height], "|", color=colour, ms=8, mew=1.5)
        ax.plot([100 * row.effect], [height], "o", color=colour)
    ax.axvline(0, color="black", lw=0.8)
    ax.margins(x=0.06)
    ax.set_yticks(range(len(rows) - 1, -1, -1), [f"{r.label}\n{r.verdict}" for r in rows])
    ax.grid(visible=False, axis="y")
    side = {True: " (right is worse)", False: " (right is better)", None: ""}[lower_is_better]
    what = f"{metric}: " if metric else ""
    ax.set_xlabel(f"{what}B against A in %{side}\ngrey: noise floor")
    ax.set_ylim(-0.6, len(rows) - 0.4)
    return ax
