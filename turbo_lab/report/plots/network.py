"""Figures about the network: cost by message size, bandwidth, gain of compression, break-even."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from turbo_lab.core.units import KiB, MiB
from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

MARKERS = ("o", "s", "^", "D")
Points = Sequence[tuple[float, float]]
Curve = Callable[[float], float]


def plot_cost(
    measured: Mapping[str, Points],
    curves: Mapping[str, Curve],
    *,
    held_out: Sequence[float] = (),
    ax: Axes | None = None,
) -> Axes:
    """Time against message size, both logarithmic.

    Args:
        measured: label to (bytes, seconds).
        curves: label to seconds by bytes; one with a label of ``measured`` has its colour.
        held_out: sizes that a fit has not seen, drawn hollow.
        ax: where to draw.
    """
    ax = new_axes(ax)
    sizes = [size for points in measured.values() for size, _ in points]
    names = list(dict.fromkeys([*measured, *curves]))
    for name in names:
        look = _look(names.index(name))
        if name in measured:
            _dots(ax, measured[name], held_out, label=name, **look)
        if name in curves and sizes:
            xs = np.geomspace(min(sizes), max(sizes), 200)
            dashed = {} if name in measured else {"ls": "--", "label": name}
            ax.plot(xs, [1e3 * curves[name](x) for x in xs], color=look["color"], lw=1.4, **dashed)
    ax.set(xscale="log", yscale="log", ylabel="time [ms]")
    _plain_ticks(ax.yaxis)
    _size_axis(ax, sizes)
    if names:
        ax.legend(frameon=False, fontsize=9)
    return ax


def plot_bandwidth(
    measured: Mapping[str, Points],
    *,
    limit_bytes_s: float | None = None,
    wanted_share: float = 0.85,
    ylabel: str = "bus bandwidth [GB/s]",
    ax: Axes | None = None,
) -> Axes:
    """Bandwidth against size, linear in bandwidth; the link's rate and the wanted share of it."""
    ax = new_axes(ax)
    for number, (name, points) in enumerate(measured.items()):
        look = _look(number)
        ax.plot([x for x, _ in points], [y / 1e9 for _, y in points], "-", label=name, ms=5, **look)
    if limit_bytes_s is not None:
        shares = ((1.0, "the link"), (wanted_share, f"{wanted_share:.0%} of it"))
        for share, text in shares:
            ax.axhline(share * limit_bytes_s / 1e9, color="grey", lw=1, ls="--")
            ax.annotate(text, (0.01, share * limit_bytes_s / 1e9), fontsize=9, color="#333333",
                        xycoords=("axes fraction", "data"), xytext=(0, 3),
                        textcoords="offset points")  # fmt: skip
    ax.set(xscale="log", ylabel=ylabel)
    ax.set_ylim(0, None)
    _size_axis(ax, [x for points in measured.values() for x, _ in points])
    ax.legend(frameon=False, fontsize=9, loc="center left")
    return ax


def plot_gain(
    measured: Mapping[str, Points],
    curves: Mapping[str, Curve],
    *,
    marks: Mapping[str, float] | None = None,
    xlabel: str = "bandwidth of the plain all-reduce [Mbit/s]",
    ylabel: str = "time plain / time compressed",
    ax: Axes | None = None,
) -> Axes:
    """Gain against the link's rate (bit/s), both logarithmic; 1 neither gains nor loses.

    ``marks``: label to the rate that was foretold as break-even, a short vertical line at 1.
    """
    ax = new_axes(ax)
    rates = [x for points in measured.values() for x, _ in points]
    for number, name in enumerate(curves):
        look = _look(number)
        points = measured.get(name, ())
        if rates:
            xs = np.geomspace(min(rates) / 1.3, max(rates) * 1.3, 100)
            ax.plot(xs / 1e6, [curves[name](x) for x in xs], "-", color=look["color"], lw=1.3)
        ax.plot([x / 1e6 for x, _ in points], [y for _, y in points], ls="none", ms=7, label=name,
                **look)  # fmt: skip
        rate = (marks or {}).get(name)
        if rate and np.isfinite(rate) and rates and rate < 1.3 * max(rates):
            ax.plot([rate / 1e6], [1], "|", color=look["color"], ms=22, mew=2)
    ax.axhline(1, color="black", lw=0.9)
    ax.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
    _plain_ticks(ax.xaxis, ax.yaxis)
    ax.legend(frameon=False, fontsize=9)
    return ax


def _look(number: int) -> dict[str, str]:
    return {"color": COLOURS[number % 4], "marker": MARKERS[number % 4]}


def _dots(ax: Axes, points: Points, held_out: Sequence[float], *, label: str, **look: str) -> None:
    """Filled where the fit has seen the size, hollow where it has not."""
    for hidden in (False, True):
        mine = [(x, 1e3 * y) for x, y in points if (x in held_out) == hidden]
        if mine:
            face = {"mfc": "white"} if hidden else {"label": label}
            ax.plot(*zip(*mine, strict=True), ls="none", ms=5, **look, **face)


def _size_axis(ax: Axes, sizes: Sequence[float]) -> None:
    """Ticks at powers of 16, named in KiB and MiB."""
    ticks = [KiB * 4**k for k in range(10) if min(sizes, default=0) <= KiB * 4**k]
    ticks = [tick for tick in ticks if tick <= 1.01 * max(sizes, default=0)]
    names = [f"{t // MiB} MiB" if t >= MiB else f"{t // KiB} KiB" for t in ticks]
    ax.set_xticks(ticks, names)
    ax.minorticks_off()
    ax.set_xlabel("size")


def _plain_ticks(*axes: Axis) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in axes:
        axis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
