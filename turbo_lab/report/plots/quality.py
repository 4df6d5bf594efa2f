"""Quality against size: KL with its interval, one name per point, labels that keep apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from turbo_lab.experiment.quality_table import QualityRow
from turbo_lab.report.plots.request import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKS = ("o", "s", "^", "D", "v", "P")


def draw_kl(
    ax: Axes,
    rows: Sequence[QualityRow],
    *,
    sizes: Mapping[str, float],
    groups: Mapping[str, Sequence[str]],
    lowest: float,
    gap: float,
    near: Callable[[float, float], bool],
    beside: Callable[[float], float],
) -> None:
    """Draw KL [nat/token] over the size of each row on a logarithmic axis, with interval and name.

    Args:
        ax: where.
        rows: rows without a text score or a size are left out.
        sizes: position of a row's name along x.
        groups: legend label to the names of its rows.
        lowest: an interval that reaches zero is drawn down to here.
        gap: factor between the heights of two labels whose sizes are ``near``.
        near: whether two sizes are so close that their labels would overlap.
        beside: where along x the label of a size begins.
    """
    by_name = {row.name: row for row in rows if row.text and row.name in sizes}
    points: list[tuple[float, float, str]] = []
    for number, (label, names) in enumerate(groups.items()):
        for first, name in enumerate(n for n in names if n in by_name):
            kl, size = by_name[name].text.kl, sizes[name]  # type: ignore[union-attr]
            low = min(max(kl.low, lowest), kl.mean)
            ax.errorbar(size, kl.mean, yerr=[[kl.mean - low], [kl.high - kl.mean]], capsize=3,
                        fmt=MARKS[number % len(MARKS)], color=COLOURS[number % len(COLOURS)],
                        label=label if first == 0 else None)  # fmt: skip
            points.append((size, kl.mean, name))
    for size, value, name, height in spread_labels(points, near=near, gap=gap):
        ax.annotate(name, (size, value), xytext=(beside(size), height), fontsize=8, va="center",
                    arrowprops={"arrowstyle": "-", "lw": 0.5, "color": "grey"})  # fmt: skip
    ax.set_yscale("log")
    if points:
        ax.legend(frameon=False, fontsize=9, loc="lower right")


def spread_labels(
    points: Sequence[tuple[float, float, str]], *, near: Callable[[float, float], bool], gap: float
) -> list[tuple[float, float, str, float]]:
    """Each (size, value, name) with the height of its label: near ones keep a factor apart."""
    out: list[tuple[float, float, str, float]] = []
    for size, value, name in sorted(points, key=lambda p: p[1]):
        heights = [height for x, _, _, height in out if near(size, x)]
        out.append((size, value, name, max([value, *(height * gap for height in heights)])))
    return out
