"""Figures of the roofline: measured points under their roof, step times, memory by working set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from turbo_lab.hardware.ceilings import Ceilings
from turbo_lab.hardware.roofline import Roof, RooflinePoint, above_roof
from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = ("o", "s", "^", "D")


def plot_roofline(
    points: Mapping[str, Sequence[RooflinePoint]],
    *,
    roof: Roof,
    annotate: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Operations/s against operations per byte, both logarithmic, under the roof.

    ``points``: group name to points. A point above the roof is drawn in red with a cross, so that
    a wrong unit is seen at once.
    """
    ax = new_axes(ax)
    everything = [p for group in points.values() for p in group]
    spread = [p.intensity for p in everything] + [roof.ridge]
    left, right = min(spread) / 4, max(spread) * 4
    ax.plot(
        [left, roof.ridge, right],
        [roof.attainable_flops(x) / 1e9 for x in (left, roof.ridge, right)],
        color="black", lw=1.5, label=f"roof: {roof.label}",
    )  # fmt: skip
    ax.axvline(roof.ridge, color="grey", lw=0.8, ls=":")
    for i, (label, group) in enumerate(points.items()):
        ax.plot(
            [p.intensity for p in group], [p.achieved_flops / 1e9 for p in group],
            MARKERS[i % len(MARKERS)], color=COLOURS[i % len(COLOURS)], ms=5, label=label,
        )  # fmt: skip
        if annotate:
            for p in group:
                ax.annotate(p.label, (p.intensity, p.achieved_flops / 1e9), fontsize=7,
                            xytext=(4, -8), textcoords="offset points")  # fmt: skip
    wrong = above_roof(everything, roof=roof)
    if wrong:
        ax.plot([p.intensity for p in wrong], [p.achieved_flops / 1e9 for p in wrong], "x",
                color="red", ms=10, mew=2, label="above the roof: check the units")  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="operations per byte",
           ylabel="10⁹ operations per second", xlim=(left, right))  # fmt: skip
    ax.legend(frameon=False, loc="lower right", fontsize=8)
    return ax


def plot_step_times(
    rows: Sequence[tuple[str, float, float, float | None]],
    *,
    unit: str = "ms",
    ax: Axes | None = None,
) -> Axes:
    """Bound, predicted and measured seconds of steps, one group per row.

    ``rows``: (label, bound, predicted, measured or None); an unmeasured one is left out and said.
    """
    ax = new_axes(ax)
    scale = {"ms": 1e3, "s": 1.0}[unit]
    places = list(range(len(rows)))
    ax.bar([x - 0.2 for x in places], [r[1] * scale for r in rows], width=0.2, color=COLOURS[3],
           label="bound (nothing fitted)")  # fmt: skip
    ax.bar(places, [r[2] * scale for r in rows], width=0.2, color=COLOURS[1], label="predicted")
    seen = [(x + 0.2, r[3] * scale) for x, r in zip(places, rows, strict=True) if r[3] is not None]
    ax.bar([x for x, _ in seen], [y for _, y in seen], width=0.2, color=COLOURS[0],
           label="measured")  # fmt: skip
    for x, row in zip(places, rows, strict=True):
        if row[3] is None:
            ax.annotate("unmeasured", (x + 0.2, 0), rotation=90, fontsize=7, va="bottom")
    ax.set_xticks(places, [r[0] for r in rows], rotation=30, ha="right", fontsize=8)
    ax.set(ylabel=f"one step [{unit}]")
    ax.legend(frameon=False)
    return ax


def plot_bandwidth(ceilings: Ceilings, *, ax: Axes | None = None) -> Axes:
    """Best memory bandwidth against the size of the working set, with the caches marked."""
    ax = new_axes(ax)
    sizes = [p.working_set_bytes / 2**20 for p in ceilings.bandwidth]
    ax.plot(sizes, [p.read_bytes_s / 1e9 for p in ceilings.bandwidth], "o-", color=COLOURS[0],
            label="read")  # fmt: skip
    ax.plot(sizes, [p.copy_bytes_s / 1e9 for p in ceilings.bandwidth], "s--", color=COLOURS[1],
            label="copy (read and written bytes)")  # fmt: skip
    for name, size in ceilings.cache_bytes.items():
        if not name.endswith("i"):
            ax.axvline(size / 2**20, color="grey", lw=0.8, ls=":")
            ax.annotate(name, (size / 2**20, 0), xytext=(2, 4), textcoords="offset points",
                        fontsize=8)  # fmt: skip
    ax.set(xscale="log", xlabel="working set [MiB]", ylabel="bandwidth [GB/s]", ylim=(0, None))
    ax.legend(frameon=False)
    return ax
