"""Figures about smaller caches: bits by length, unlike channels, quality by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turbo_lab.experiment.quality_table import QualityRow
from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKS = ("o", "s", "^", "D")
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
    by_name = {r.name: r for r in rows if r.text and r.smaller and r.text.kl.mean > 0}
    points: list[tuple[float, float, str]] = []
    for number, (label, names) in enumerate(groups.items()):
        shown = [by_name[name] for name in names if name in by_name]
        for first, row in enumerate(shown):
            kl: Any = row.text.kl  # type: ignore[union-attr]
            low = min(max(kl.low, LEAST_KL), kl.mean)
            ax.errorbar(row.smaller, kl.mean, yerr=[[kl.mean - low], [kl.high - kl.mean]],
                        capsize=3, fmt=MARKS[number % len(MARKS)], ms=5,
                        color=COLOURS[number % len(COLOURS)],
                        label=label if first == 0 else None)  # fmt: skip
            points.append((float(row.smaller), kl.mean, row.name))  # type: ignore[arg-type]
    for size, value, name, height in spread_labels(points):
        ax.annotate(name, (size, value), xytext=(size + 0.12, height), fontsize=8, va="center",
                    arrowprops={"arrowstyle": "-", "lw": 0.5, "color": "grey"})  # fmt: skip
    ax.set(yscale="log", xlabel="times smaller than the float32 cache, at these lengths",
           ylabel="KL to the float32 cache [nat/token]")  # fmt: skip
    right = max((p[0] for p in points), default=1.0)
    ax.set_xlim(left=1.0, right=right + 2.6)
    if points:
        ax.legend(frameon=False, fontsize=9, loc="lower right")
    return ax


def spread_labels(
    points: Sequence[tuple[float, float, str]], *, near: float = 2.4, gap: float = LABEL_GAP
) -> list[tuple[float, float, str, float]]:
    """Each (size, value, name) with the height of its label: neighbours keep a factor apart."""
    out: list[tuple[float, float, str, float]] = []
    for size, value, name in sorted(points, key=lambda p: p[1]):
        beside = [height for x, _, _, height in out if abs(size - x) < near]
        out.append((size, value, name, max([value, *(height * gap for height in beside)])))
    return out
