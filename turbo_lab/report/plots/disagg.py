"""Figures about handing a KV cache over: time against bandwidth, gaps of a reply, least links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MBIT = 8e-6  # bytes/s to Mbit/s
CURVE_POINTS = 120


@dataclass(frozen=True)
class Ways:
    """One prompt both ways. ``transfer_s`` and ``computed_s``: the forecast; the rest is measured.

    ``moved``: samples of TTFT by bandwidth (bytes/s); ``computed``: samples without a transfer.
    """

    label: str
    transfer_s: Callable[[float], float]
    computed_s: float
    break_even_bytes_s: float
    moved: Mapping[float, Sequence[float]]
    computed: Sequence[float]


def plot_ways(ways: Sequence[Ways], *, ax: Axes | None = None) -> Axes:
    """TTFT against the link's rate: forecast as lines, measured as points, break-even marked."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax = new_axes(ax, width_in=7.8, height_in=4.6)
    rates = [rate for way in ways for rate in way.moved]
    low, high = min(rates) / 1.5, max(rates) * 1.5
    grid = np.geomspace(low, high, CURVE_POINTS)
    for colour, way in zip(COLOURS, ways, strict=False):
        ax.plot(grid * MBIT, [way.transfer_s(rate) for rate in grid], color=colour, lw=1.6,
                label=f"{way.label}: fetched")  # fmt: skip
        ax.axhline(way.computed_s, color=colour, lw=1.2, ls="--",
                   label=f"{way.label}: computed again")  # fmt: skip
        ax.axvline(way.break_even_bytes_s * MBIT, color=colour, lw=0.8, ls=":")
        for rate, samples in way.moved.items():
            ax.plot([rate * MBIT] * len(samples), samples, "o", color=colour, ms=4.5, alpha=0.8)
        right = high * MBIT * 0.97
        ax.plot([right] * len(way.computed), way.computed, "s", color=colour, ms=4.5, alpha=0.8)
    ax.set(xscale="log", xlabel="rate of the link [Mbit/s]", ylabel="time to first token [s]")
    ax.set_xlim(low * MBIT, high * MBIT)
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_ylim(0, None)
    ax.legend(frameon=False, fontsize=9)
    return ax


@dataclass(frozen=True)
class Gaps:
    """A reply's gaps: ``at_s`` from its first token, ``gaps_s``, and which lie beside a prompt."""

    label: str
    at_s: Sequence[float]
    gaps_s: Sequence[float]
    beside: Sequence[bool]


def plot_gaps(runs: Sequence[Gaps], *, ax: Axes | None = None) -> Axes:
    """Each gap between two tokens of a running reply, over its time; a long prompt came beside."""
    ax = new_axes(ax, width_in=7.8, height_in=4.2)
    for colour, run in zip(COLOURS, runs, strict=False):
        beside = [g for g, b in zip(run.gaps_s, run.beside, strict=True) if b]
        worst = max(beside or run.gaps_s)
        ax.plot(run.at_s, run.gaps_s, "o", color=colour, ms=3.5, alpha=0.75,
                label=f"{run.label}: longest {worst:.2f} s")  # fmt: skip
        at = max(zip(run.gaps_s, run.at_s, strict=True))
        ax.plot([at[1]], [at[0]], "D", color=colour, ms=8, mfc="none")
    usual = median([g for run in runs for g in run.gaps_s])
    ax.axhline(usual, color="0.5", lw=0.8, ls="--", label=f"usual gap {usual * 1e3:.0f} ms")
    ax.set(yscale="log", xlabel="seconds since the reply's first token",
           ylabel="gap to the next token [s]")  # fmt: skip
    ax.legend(frameon=False, fontsize=9)
    return ax


def plot_least_links(
    prefixes: Sequence[int], lines: Mapping[str, Sequence[float]], *,
    links: Mapping[str, float], points: Mapping[str, tuple[int, float]] | None = None,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Least bandwidth (bytes/s) over prefix length, a line per chip; real links as grey lines.

    ``links``: label to bytes/s. ``points``: label to (prefix tokens, measured bytes/s).
    """
    ax = new_axes(ax, width_in=7.8, height_in=4.6)
    for colour, (label, values) in zip(COLOURS, lines.items(), strict=False):
        ax.plot(prefixes, values, color=colour, lw=1.8, label=label)
    for label, rate in links.items():
        ax.axhline(rate, color="0.45", lw=0.8, ls="--")
        ax.annotate(label, (prefixes[0], rate), xytext=(2, 3), textcoords="offset points",
                    fontsize=8.5, color="0.3")  # fmt: skip
    for label, (tokens, rate) in (points or {}).items():
        ax.plot([tokens], [rate], "D", color=COLOURS[0], ms=7, mfc="white", label=label)
    ax.set(xscale="log", yscale="log", xlabel="prefix [tokens]",
           ylabel="least bandwidth [bytes/s]")  # fmt: skip
    ax.legend(frameon=False, fontsize=9, loc="lower left")
    return ax
