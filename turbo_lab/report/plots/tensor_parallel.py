"""Figures about splitting layers: where a step's time goes, what a rank keeps, when it pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#333333"
STYLES = ("-", "--", "-.", ":")
Parts = Mapping[str, float]


def plot_step_parts(
    rows: Mapping[str, Mapping[str, Parts | None]],
    *,
    bands: Mapping[str, Mapping[str, tuple[float, float]]] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Seconds of steps as bars of parts, grouped by step.

    ``rows``: step to way of computing it to {part: seconds}; None is unmeasured. ``bands``: the
    range of a forecast, by step and way.
    """
    names = list(dict.fromkeys(p for ways in rows.values() for w in ways.values() for p in w or ()))
    total = sum(len(ways) for ways in rows.values()) + len(rows)
    ax = new_axes(ax, width_in=7.4, height_in=0.9 + 0.27 * total)
    y, ticks, labels, ends = 0.0, [], [], []
    for step, ways in rows.items():
        ax.text(0, y, step, fontsize=9, weight="bold", color=INK, va="center")
        for way, parts in ways.items():
            y += 1
            left_ms = 0.0
            for part, seconds in (parts or {}).items():
                ax.barh(y, 1e3 * seconds, left=left_ms, height=0.72,
                        color=COLOURS[names.index(part) % len(COLOURS)])  # fmt: skip
                left_ms += 1e3 * seconds
            if band := (bands or {}).get(step, {}).get(way):
                low_ms, high_ms = (1e3 * value for value in band)
                ax.plot([low_ms, high_ms], [y, y], "|-", color=INK, lw=1.2, ms=9)
                left_ms = max(left_ms, high_ms)
            text = f"{1e3 * sum(parts.values()):.0f} ms" if parts else "unmeasured"
            ax.annotate(text, (left_ms, y), xytext=(5, 0), textcoords="offset points",
                        va="center", fontsize=8, color=INK)  # fmt: skip
            ticks, labels, ends = [*ticks, y], [*labels, way], [*ends, left_ms]
        y += 1.3
    for number, part in enumerate(names):
        ax.bar(0, 0, color=COLOURS[number % len(COLOURS)], label=part)
    ax.set_yticks(ticks, labels, fontsize=8)
    ax.set(xlabel="seconds of one step [ms]", xlim=(0, 1.15 * max([*ends, 1e-3])),
           ylim=(y - 0.6, -0.8))  # fmt: skip
    ax.grid(visible=False, axis="y")
    if names:
        ax.legend(frameon=False, fontsize=8, loc="lower right")
    return ax


def plot_kept(
    kept: Mapping[str, Mapping[int, float]], *, ylabel: str, ax: Axes | None = None
) -> Axes:
    """What one rank keeps of the whole, by number of ranks; both axes logarithmic.

    ``kept``: name to {ranks: share of the whole}. The thin line is an even split, 1/n: a curve that
    leaves it is kept more than once.
    """
    ax = new_axes(ax, height_in=3.8)
    most = max([n for shares in kept.values() for n in shares] or [1])
    ax.plot([1, most], [1, 1 / most], color="grey", lw=1, label="even split, 1/n")
    for number, (name, shares) in enumerate(kept.items()):
        ranks = sorted(shares)
        ax.plot(ranks, [shares[n] for n in ranks], STYLES[number % 4], marker="o", ms=5,
                color=COLOURS[number % len(COLOURS)], label=name)  # fmt: skip
    ticks = sorted({n for shares in kept.values() for n in shares})
    ax.set(xscale="log", yscale="log", xlabel="ranks", ylabel=ylabel)
    ax.set_xticks(ticks, [str(n) for n in ticks])
    ax.minorticks_off()
    levels = [1 / n for n in ticks]
    ax.set_yticks(levels, [f"1/{n}" if n > 1 else "1" for n in ticks])
    ax.legend(frameon=False, fontsize=8, loc="lower left")
    return ax


def plot_gain(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    *,
    xlabel: str,
    marks: Mapping[str, float] | None = None,
    ideal: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Speed-up by splitting against a property of the link (x, logarithmic).

    ``curves``: name to (x, speed-up) pairs. Below the thick line at 1 splitting loses. ``marks``:
    links to name on the x axis. ``ideal``: the speed-up with a free exchange.
    """
    ax = new_axes(ax, height_in=3.9)
    for number, (name, points) in enumerate(curves.items()):
        xs, gains = zip(*points, strict=True) if points else ((), ())
        label = name if points else f"{name}: unmeasured"
        ax.plot(xs, gains, STYLES[number % 4], lw=2, color=COLOURS[number % len(COLOURS)],
                label=label)  # fmt: skip
    ax.axhline(1, color=INK, lw=2)
    low, high = ax.get_ylim()
    top = max(high, 1.3, 1.12 * (ideal or 0))
    if ideal is not None:
        ax.axhline(ideal, color="grey", lw=1, ls=":")
        ax.annotate("free exchange", (0, ideal), xycoords=("axes fraction", "data"), xytext=(4, 3),
                    textcoords="offset points", fontsize=8, color=INK)  # fmt: skip
    ax.axhspan(min(low, 0), 1, color=COLOURS[1], alpha=0.08, lw=0)
    for name, x in (marks or {}).items():
        ax.axvline(x, color="grey", lw=0.9, ls=":")
        ax.annotate(name, (x, top), xytext=(-3, -3), textcoords="offset points", fontsize=8,
                    rotation=90, ha="right", va="top", color=INK)  # fmt: skip
    ax.set(xscale="log", xlabel=xlabel, ylabel="speed-up by splitting", ylim=(0, top))
    ax.legend(frameon=False, fontsize=8, loc="best")
    return ax
