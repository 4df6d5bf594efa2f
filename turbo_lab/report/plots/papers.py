"""Figures about papers: what records lack, how large claims are, what a trap is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from turbo_lab.metrics.percentiles import percentile
from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAP, TRAP, FINE = "#c2571a", "#7b4fa3", "#eef1f4"
MARKERS = ("o", "s", "^", "D", "v")


def plot_missing(
    papers: Sequence[str],
    flags: Mapping[str, Sequence[bool]],
    *,
    conditions: int,
    ax: Axes | None = None,
) -> Axes:
    """One column per paper, one row per flag; a filled cell is a flag that holds.

    Args:
        papers: names, in drawing order.
        flags: row label to one value per paper; the count of each row stands at its end.
        conditions: so many rows are missing conditions, drawn apart from the traps below them.
        ax: where to draw.
    """
    ax = new_axes(ax, width_in=10.6, height_in=2.2 + 0.24 * len(flags))
    heights = [row + (0.4 if row >= conditions else 0.0) for row in range(len(flags))]
    for row, values in enumerate(flags.values()):
        colour = GAP if row < conditions else TRAP
        shades = [colour if value else FINE for value in values]
        ax.bar(range(len(papers)), [0.86] * len(papers), bottom=heights[row] - 0.43, width=0.86,
               color=shades)  # fmt: skip
        ax.text(len(papers) - 0.2, heights[row], f"{sum(values)}", va="center", fontsize=9)
    ax.set_yticks(heights, list(flags))
    ax.set_xticks(range(len(papers)), papers, rotation=90, fontsize=7.5)
    ax.tick_params(length=0)
    ax.set(xlim=(-0.6, len(papers) + 0.8), ylim=(heights[-1] + 0.6, -0.6))
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.grid(visible=False)
    return ax


def plot_claims(
    points: Sequence[tuple[int, float, str, str]], *, named: int = 5, ax: Axes | None = None
) -> Axes:
    """Claimed factor (logarithmic) over missing conditions; the bars are medians per column.

    Args:
        points: (missing conditions, factor, kind of baseline, paper).
        named: so many of the largest factors get their paper's name.
        ax: where to draw.
    """
    ax = new_axes(ax, width_in=7.4, height_in=4.0)
    kinds = list(dict.fromkeys(kind for _, _, kind, _ in points))
    largest = sorted(points, key=lambda p: -p[1])[:named]
    for number, kind in enumerate(kinds):
        mine = [point for point in points if point[2] == kind]
        offset = 0.13 * (number - (len(kinds) - 1) / 2)
        ax.plot([m + offset for m, *_ in mine], [f for _, f, *_ in mine], ls="none", ms=6.5,
                marker=MARKERS[number % len(MARKERS)], color=COLOURS[number % len(COLOURS)],
                mec="white", mew=0.5, alpha=0.9, label=f"{kind}, n = {len(mine)}")  # fmt: skip
        for missing, factor, _, paper in mine:
            if (missing, factor, kind, paper) in largest:
                _name(ax, paper, (missing + offset, factor))
    for missing in sorted({m for m, *_ in points}):
        middle = median(f for m, f, *_ in points if m == missing)
        ax.plot([missing - 0.33, missing + 0.33], [middle, middle], color="#555555", lw=2, zorder=0)
    ax.set_yscale("log")
    ticks = [t for t in (1, 2, 3, 5, 10, 20, 40, 80) if t <= 1.3 * max(f for _, f, *_ in points)]
    ax.set_yticks(ticks, [f"{t}x" for t in ticks])
    ax.minorticks_off()
    ax.set(xlabel="conditions that the record does not state, of six",
           ylabel="largest factor claimed")  # fmt: skip
    ax.margins(x=0.08, y=0.08)
    ax.legend(title="compared with", frameon=False, fontsize=8.5, title_fontsize=8.5,
              loc="center left", bbox_to_anchor=(1.0, 0.5))  # fmt: skip
    return ax


def _name(ax: Axes, paper: str, place: tuple[float, float]) -> None:
    """At the left of its point, or at the right where another name already stands."""
    taken = any(
        abs(text.xy[0] - place[0]) < 0.5 and 0.87 < text.xy[1] / place[1] < 1.15
        for text in ax.texts
    )
    side = {"xytext": (7, 4), "ha": "left"} if taken else {"xytext": (-6, 4), "ha": "right"}
    ax.annotate(paper, place, textcoords="offset points", fontsize=8, **side)


def plot_trap_sizes(
    rows: Mapping[str, tuple[float | None, float | None]],
    *,
    least: float = 0.7,
    ax: Axes | None = None,
) -> Axes:
    """What a method that does nothing could claim: predicted (hollow) and measured (filled).

    Args:
        rows: trap to (predicted, measured) factor; None is named as unmeasured.
        least: left end of the logarithmic axis.
        ax: where to draw.
    """
    ax = new_axes(ax, width_in=7.4, height_in=1.3 + 0.5 * len(rows))
    ax.axvline(1, color="#555555", lw=1)
    for row, (predicted, measured) in enumerate(rows.values()):
        if measured is not None:
            ax.barh(row, measured - 1, left=1, height=0.34, color=COLOURS[0], alpha=0.25)
            ax.plot(measured, row, "o", color=COLOURS[0], ms=9,
                    label="measured" if row == 0 else None)  # fmt: skip
        if predicted is not None:
            ax.plot(predicted, row, "D", mfc="none", mec=COLOURS[1], mew=1.8, ms=11,
                    label="predicted" if row == 0 else None)  # fmt: skip
        right = max(1.0, measured or 1.0, predicted or 1.0)
        text = "unmeasured" if measured is None else f"{measured:.2f}x"
        ax.annotate(text, (right, row), xytext=(13, 0), textcoords="offset points", va="center",
                    fontsize=9)  # fmt: skip
    ax.set_xscale("log")
    top = max([v for pair in rows.values() for v in pair if v], default=2.0)
    ticks = [t for t in (0.8, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 32, 64) if least <= t <= 1.5 * top]
    ax.set_xticks(ticks, [f"{t:g}x" for t in ticks])
    ax.minorticks_off()
    ax.set(xlim=(least, 1.7 * top), xlabel="gain that could be reported")
    ax.set_yticks(range(len(rows)), list(rows))
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.legend(frameon=False, fontsize=9, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return ax


def plot_survivors(
    latencies_s: Sequence[float],
    *,
    p: float,
    timeout_s: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One run read with every time-out: share given up, and the percentile of the survivors.

    Args:
        latencies_s: of all requests of one run, each waited for to its end.
        p: which percentile (0-100).
        timeout_s: the time-out to mark.
        ax: where to draw.
    """
    ax = new_axes(ax, width_in=7.4, height_in=3.8)
    ordered = sorted(latencies_s)
    if not ordered:
        ax.text(0.5, 0.5, "unmeasured", transform=ax.transAxes, ha="center")
        return ax
    whole = percentile(ordered, p) or 0.0
    limits = [*ordered, 1.05 * ordered[-1]]
    kept = [sum(value <= limit for value in ordered) for limit in limits]
    lost = [100 * (1 - count / len(ordered)) for count in kept]
    flattered = [percentile(ordered[:count], p) for count in kept]
    share = ax.twinx()
    share.fill_between([0.0, *limits], [100.0, *lost], step="post", color=GAP, alpha=0.18, lw=0)
    share.set(ylim=(0, 103), ylabel="requests given up [%]")
    share.spines[["top"]].set_visible(False)
    share.grid(visible=False)
    ax.set_zorder(share.get_zorder() + 1)
    ax.patch.set_visible(False)
    ax.axhline(whole, color="#555555", lw=1.2, ls="--", label=f"P{p:g} of all requests")
    ax.step(limits, flattered, where="post", color=COLOURS[0], lw=2, label=f"P{p:g} of survivors")
    if timeout_s is not None:
        ax.axvline(timeout_s, color=COLOURS[1], lw=1.2, ls=":", label="the time-out taken here")
    ax.set(xlabel="time-out [s]", ylabel=f"P{p:g} of E2E [s]", ylim=(0, 1.12 * ordered[-1]))
    ax.set_xlim(0.0, limits[-1])
    ax.legend(frameon=False, fontsize=9, ncols=3, loc="lower left", bbox_to_anchor=(0.0, 1.0))
    return ax
