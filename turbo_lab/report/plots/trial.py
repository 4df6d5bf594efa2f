"""Figures of the capstone: stages of a chain, Amdahl's law, restarts of every arm."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from turbo_lab.estimate import amdahl
from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FLOOR = "#d5d8dd"
STAGE_COLOURS = ("#7b4fa3", "#c2571a", "#0b6e99", "#6fb3cf", "#b9bec6")


def plot_stages(
    chains: Mapping[str, Mapping[str, float]],
    *,
    predicted: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Mean seconds of a question, stage after stage, one bar per chain.

    Args:
        chains: name to stage to seconds; equal stages in equal order.
        predicted: name to seconds of the whole, drawn as a hollow diamond.
        ax: where to draw.
    """
    ax = new_axes(ax, height_in=1.4 + 0.5 * len(chains))
    names = list(chains)
    ends = [0.0] * len(names)
    for number, stage in enumerate(next(iter(chains.values()), {})):
        widths = [1e3 * chains[name][stage] for name in names]
        colour = STAGE_COLOURS[number % len(STAGE_COLOURS)]
        ax.barh(names, widths, left=ends, height=0.6, color=colour, label=stage)
        ends = [a + b for a, b in zip(ends, widths, strict=True)]
    told = [(1e3 * s, n) for n, s in (predicted or {}).items() if n in chains]
    if told:
        ax.plot(*zip(*told, strict=True), "D", mfc="white", mec="black", ms=7, ls="none",
                label="predicted")  # fmt: skip
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.set_xlabel("milliseconds of a question, mean")
    ax.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0.0, 1.0))
    return ax


def plot_amdahl(
    shares: Mapping[str, float],
    *,
    measured: Mapping[str, tuple[float, float]] | None = None,
    largest: float = 8.0,
    ax: Axes | None = None,
) -> Axes:
    """Speed-up of the whole against the speed-up of inference, a line per share of inference.

    ``measured``: name to (speed-up of inference, speed-up of the whole), as dots.
    """
    ax = new_axes(ax)
    steps = [1 + i * (largest - 1) / 60 for i in range(61)]
    for (name, share), colour in zip(shares.items(), COLOURS, strict=False):
        wholes = [amdahl.speedup(share, faster=s) for s in steps]
        ax.plot(steps, wholes, color=colour, label=f"{name}: {share:.0%} inference")
        if amdahl.limit(share) < largest:
            ax.axhline(amdahl.limit(share), color=colour, ls=":", lw=1)
        if measured and name in measured:
            ax.plot(*([v] for v in measured[name]), "o", color=colour, mec="black", ms=7)
    ax.plot(steps, steps, color="black", lw=0.8, ls="--", label="all of it is inference")
    ax.set(xlabel="inference so many times as fast", ylabel="chain so many times as fast")
    ax.set_ylim(1, largest)
    ax.set_xlim(1, largest)
    ax.legend(frameon=False, loc="upper left")
    return ax


def plot_panels(
    panels: Mapping[str, tuple[Mapping[str, Sequence[float]], float | None, float]],
) -> list[Axes]:
    """``plot_restarts`` side by side: label to (arms, floor, scale). Returns the Axes."""
    import matplotlib.pyplot as plt

    if not panels:
        return []
    width_in = max(4.0, 3.3 * len(panels))
    figure, axes = plt.subplots(1, len(panels), figsize=(width_in, 3.4), squeeze=False,
                                layout="constrained")  # fmt: skip
    for ax, (label, (arms, floor, scale)) in zip(axes.flat, panels.items(), strict=True):
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
        plot_restarts(arms, label=label, floor=floor, scale=scale, ax=ax)
        ax.tick_params(axis="x", labelsize=8.5)
    return list(figure.axes)


def plot_restarts(
    arms: Mapping[str, Sequence[float]],
    *,
    label: str,
    floor: float | None = None,
    scale: float = 1.0,
    ax: Axes | None = None,
) -> Axes:
    """Every restart of every arm as a dot, its median as a line; the first arm's floor in grey.

    Args:
        arms: name to one value per restart; the original first.
        label: of the y axis, with its unit.
        floor: relative; the band in which a difference is noise.
        scale: factor on all values, for the unit.
        ax: where to draw.
    """
    ax = new_axes(ax, width_in=4.0)
    known = {name: [v * scale for v in values] for name, values in arms.items() if values}
    for place, values in enumerate(known.values()):
        middle = statistics.median(values)
        if place == 0 and floor is not None:
            ax.axhspan(middle * (1 - floor), middle * (1 + floor), color=FLOOR, zorder=0)
        shift = [place + 0.08 * (i - (len(values) - 1) / 2) for i in range(len(values))]
        colour = COLOURS[place % len(COLOURS)]
        ax.plot(shift, values, "o", color=colour, ms=5, alpha=0.75)
        ax.plot([place - 0.3, place + 0.3], [middle, middle], color=colour, lw=2)
    ax.set_xticks(range(len(known)), list(known))
    ax.set_xlabel("arm, one dot per restart")
    ax.set_ylabel(label)
    ax.set_ylim(0, None)
    ax.grid(visible=False, axis="x")
    return ax
