"""Figures about smaller caches: bits by length, unlike channels, quality by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from turbo_lab.experiment.quality_table import QualityRow
from turbo_lab.report.plots.quality import MARKS, draw_kl
from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEAR = 2.4  # times smaller: closer labels would run into each other
LABEL_GAP = 1.55  # between two labels of near size, on a logarithmic axis of about five decades
LEAST_KL = 3e-6  # an interval that reaches zero is drawn down to here on a logarithmic axis


def plot_bits(
    lengths: Sequence[int], bits: Mapping[str, Sequence[float]], *, ax: Axes | None = None
) -> Axes:
    """Bits per stored value against the tokens in the cache, one line per scheme."""
    ax = new_axes(ax, width_in=7.4, height_in=3.9)
    for number, (label, values) in enumerate(bits.items()):
        ax.plot(lengths, values, lw=1.6, color=COLOURS[number % len(COLOURS)],
                ls="-" if number < len(COLOURS) else "--", label=label)  # fmt: skip
    ax.set(xscale="log", xlabel="tokens in the cache", ylabel="bits per stored value, all counted")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize=9)
    return ax


def plot_channels(
    channels: Mapping[str, Sequence[float]], *, title: str = "", ax: Axes | None = None
) -> Axes:
    """Largest magnitude of each channel of one head, sorted, one line per side (keys, values)."""
    ax = new_axes(ax, width_in=7.4, height_in=3.4)
    for number, (side, sizes) in enumerate(channels.items()):
        ordered = sorted(sizes, reverse=True)
        ax.plot(range(1, len(ordered) + 1), ordered, MARKS[number], ms=3.5, ls="-", lw=0.8,
                color=COLOURS[number % len(COLOURS)], label=side)  # fmt: skip
    ax.set(yscale="log", xlabel="channel of the head, largest first",
           ylabel="largest magnitude [model units]", title=title)  # fmt: skip
    ax.legend(frameon=False, fontsize=9)
    return ax


def plot_cache_quality(
    rows: Sequence[QualityRow], *, groups: Mapping[str, Sequence[str]], ax: Axes | None = None
) -> Axes:
    """KL to the reference against how many times smaller the cache is, with intervals.

    ``groups``: legend label to the names of its rows. Rows without bytes, and rows that are equal
    to the reference (KL 0 has no place on a logarithmic axis), are left out.
    """
    ax = new_axes(ax, width_in=7.8, height_in=4.8)
    shown = [r for r in rows if r.text and r.smaller and r.text.kl.mean > 0]
    sizes = {row.name: row.smaller for row in shown if row.smaller}
    draw_kl(
        ax, shown, sizes=sizes, groups=groups, lowest=LEAST_KL, gap=LABEL_GAP,
        near=lambda size, other: abs(size - other) < NEAR, beside=lambda size: size + 0.12,
    )  # fmt: skip
    ax.set(xlabel="times smaller than the float32 cache, at these lengths",
           ylabel="KL to the float32 cache [nat/token]")  # fmt: skip
    ax.set_xlim(left=1.0, right=max(sizes.values(), default=1.0) + 2.6)
    return ax
