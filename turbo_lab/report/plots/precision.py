"""Figures about fewer bits: grids, error by magnitude, quality by bytes, damage by layer, speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from turbo_lab.experiment.quality_table import QualityRow
from turbo_lab.numerics.floats import FloatFormat
from turbo_lab.numerics.formats import number_format
from turbo_lab.report.plots.quality import draw_kl
from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, PALE = "#333333", "#d9d9d9"
LABEL_GAP = 1.6  # between two labels on a logarithmic axis of about six decades
LEAST_KL = 1e-5  # an interval that reaches zero is drawn down to here on a logarithmic axis


def plot_number_lines(formats: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """Every positive value that a format of 8 bits or fewer holds, one row each, on a log axis.

    Formats without an exponent are drawn with their largest value at 1.
    """
    ax = new_axes(ax, width_in=7.4, height_in=0.9 + 0.5 * len(formats))
    for row, name in enumerate(reversed(formats)):
        kind = number_format(name)
        values = kind.decode(np.arange(1 << kind.bits, dtype=np.uint8))
        values = sorted({float(v) for v in values if 0 < v < float("inf")})
        top = 1.0 if isinstance(kind, FloatFormat) else float(kind.max)
        ax.plot([v / top for v in values], [row] * len(values), "|", ms=15, mew=0.9,
                color=COLOURS[(len(formats) - 1 - row) % len(COLOURS)])  # fmt: skip
    labels = [n if isinstance(number_format(n), FloatFormat) else f"{n} (max = 1)" for n in formats]
    ax.set_yticks(range(len(formats)), [*reversed(labels)])
    ax.set(xscale="log", xlabel="positive values that exist [log scale]",
           ylim=(-0.6, len(formats) - 0.4))  # fmt: skip
    ax.grid(visible=False, axis="y")
    return ax


def plot_relative_error(formats: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """Largest relative rounding error against magnitude: half a step over the value.

    A line ends where the format overflows. Integers are scaled to hold values up to 1.
    """
    ax = new_axes(ax, height_in=3.9)
    values = np.geomspace(1e-8, 1e6, 3000)
    for number, name in enumerate(formats):
        kind = number_format(name)
        if isinstance(kind, FloatFormat):
            inside, step = values[values <= kind.max], kind.ulp(values[values <= kind.max])
        else:
            inside = values[values <= 1]
            step = np.full_like(inside, 2 / kind.levels)
        error = np.minimum(0.5 * step / inside, 1.0)  # below half a step the value becomes zero
        line = ax.plot(inside, error, lw=1.3, label=name, color=COLOURS[number % len(COLOURS)],
                       ls=("-", "--")[number // len(COLOURS)])[0]  # fmt: skip
        if inside[-1] < values[-1]:
            ax.plot(inside[-1], error[-1], "x", color=line.get_color(), ms=8, mew=2)
    ax.set(xscale="log", yscale="log", xlabel="|value|",
           ylabel="largest error / |value|", ylim=(2e-5, 2))  # fmt: skip
    ax.legend(frameon=False, ncols=3, fontsize=9, loc="lower left")
    return ax


def plot_grids(
    histogram: Mapping[str, Sequence[float]],
    grids: Mapping[str, Sequence[float]],
    *,
    ax: Axes | None = None,
) -> Axes:
    """A matrix's weights as a histogram, and below it the points that each scheme offers them.

    ``histogram``: ``edges`` and ``shares``; ``grids``: label to points; both in root mean squares.
    """
    ax = new_axes(ax, width_in=7.4, height_in=4.0)
    edges, shares = histogram["edges"], histogram["shares"]
    ax.stairs(
        [max(s, 1e-7) for s in shares], edges, baseline=1e-7, fill=True, color=PALE, ec=INK, lw=0.6
    )
    low, gap = 1e-7, 4.0
    for number, (label, points) in enumerate(grids.items()):
        height = low / gap ** (2 * number + 2)
        inside = [p for p in points if edges[0] <= p <= edges[-1]]
        ax.plot(inside, [height] * len(inside), "|", ms=14, mew=1.6, color=COLOURS[number])
        ax.annotate(f"{label}: {len(inside)} of {len(points)} points in view", (0.01, height),
                    xycoords=("axes fraction", "data"), fontsize=8, va="bottom",
                    xytext=(0, 7), textcoords="offset points", color=COLOURS[number])  # fmt: skip
    ax.axhline(low, color=INK, lw=0.8)
    ax.set(yscale="log", xlim=(edges[0], edges[-1]), ylim=(low / gap ** (2 * len(grids) + 1.4), 1),
           xlabel="weight / root mean square of the matrix",
           ylabel="share of the weights per bin")  # fmt: skip
    ax.set_yticks([1e-6, 1e-4, 1e-2, 1])
    ax.grid(visible=False)
    return ax


def plot_quality(
    rows: Sequence[QualityRow], *, groups: Mapping[str, Sequence[str]], ax: Axes | None = None
) -> Axes:
    """KL to the reference against the bytes of all weights, with intervals, one name per point.

    ``groups``: legend label to the names of its rows. An interval that reaches zero ends below.
    """
    ax = new_axes(ax, width_in=7.6, height_in=4.6)
    sizes = {row.name: row.stored_bytes / 1e6 for row in rows if row.stored_bytes}
    draw_kl(
        ax, rows, sizes=sizes, groups=groups, lowest=LEAST_KL, gap=LABEL_GAP,
        near=lambda size, other: abs(size / other - 1) < 0.2, beside=lambda size: size * 1.05,
    )  # fmt: skip
    ax.set(xlabel="bytes of all weights [MB]", ylabel="KL to float32 [nat/token]")
    ax.margins(x=0.25)
    return ax


def plot_damage(
    parts: Mapping[str, float],
    *,
    chosen: Sequence[str] = (),
    xlabel: str = "KL when this part alone is quantised [nat/token]",
    ax: Axes | None = None,
) -> Axes:
    """One bar per part, in the order given; ``chosen`` ones (the skip list) stand out."""
    ax = new_axes(ax, width_in=7.4, height_in=0.8 + 0.19 * len(parts))
    names = [*reversed(parts)]
    colours = [COLOURS[1] if n in chosen else COLOURS[0] for n in names]
    ax.barh(range(len(names)), [parts[n] for n in names], color=colours, height=0.72)
    ax.axvline(0, color=INK, lw=0.8)
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.set(xlabel=xlabel, ylim=(-0.6, len(names) - 0.4))
    ax.grid(visible=False, axis="y")
    if chosen:
        from matplotlib.patches import Patch

        ax.legend(handles=[Patch(color=COLOURS[1], label="left in 16 bits"),
                           Patch(color=COLOURS[0], label="quantised")],
                  frameon=False, fontsize=9, ncols=2, loc="lower right",
                  bbox_to_anchor=(1, 1))  # fmt: skip
    return ax


def plot_speed(
    measured: Mapping[str, Sequence[float]],
    *,
    predicted: Mapping[str, float],
    by_bits: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Tokens per second of each arm: single passes as dots, best as bar, prediction as a diamond.

    ``by_bits``: what the number of bits alone would promise, as a hollow star.
    """
    ax = new_axes(ax, width_in=7.4, height_in=1.2 + 0.55 * len(measured))
    for row, (label, rates) in enumerate(reversed(measured.items())):
        if rates:
            ax.barh(row, max(rates), height=0.5, color=COLOURS[0], alpha=0.75)
            ax.plot(rates, [row] * len(rates), "o", color=INK, ms=3.5)
        else:
            ax.annotate("unmeasured", (0, row), xytext=(4, 0), textcoords="offset points")
        if label in predicted:
            ax.plot(predicted[label], row, "D", mfc="white", mec=COLOURS[1], mew=1.6, ms=8,
                    label="predicted from bytes" if row == 0 else None)  # fmt: skip
        if by_bits and label in by_bits:
            ax.plot(by_bits[label], row, "*", mfc="none", mec=COLOURS[3], ms=11,
                    label="promised by the bits alone" if row == 0 else None)  # fmt: skip
    ax.set_yticks(range(len(measured)), [*reversed(measured)])
    ax.set(xlabel="tokens per second, one sequence [tok/s]", xlim=(0, None))
    ax.grid(visible=False, axis="y")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize=9, loc="upper center", ncols=2,
                  bbox_to_anchor=(0.5, 1.2))  # fmt: skip
    return ax
