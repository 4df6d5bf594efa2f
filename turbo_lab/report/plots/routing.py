"""Figures about serving at scale: forecasts against measurements, tails by policy, replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLES = ("-", "--", "-.", ":")


def plot_forecast_ratios(
    ratios: Mapping[str, Mapping[str, float | None]],
    *,
    aims: Mapping[str, float],
    ax: Axes | None = None,
) -> Axes:
    """Simulated over measured, one row per load and one marker per figure.

    Args:
        ratios: load to figure to ratio; None is named as unmeasured.
        aims: figure to its allowed relative error, drawn as a bar around 1 in its colour.
        ax: where to draw.
    """
    ax = new_axes(ax, height_in=0.6 * len(ratios) + 1.6)
    figures = [*aims]
    step = 0.7 / max(len(figures), 1)
    for row, values in enumerate(ratios.values()):
        for number, figure in enumerate(figures):
            y = row + (number - (len(figures) - 1) / 2) * step
            colour, value = COLOURS[number % len(COLOURS)], values.get(figure)
            ax.barh(y, 2 * aims[figure], left=1 - aims[figure], height=0.8 * step, color=colour,
                    alpha=0.18)  # fmt: skip
            if value is not None:
                label = f"{figure}, aim ±{aims[figure]:.0%}"
                ax.plot(value, y, MARKERS[number], color=colour, ms=6, label=label)
            elif figure in values:
                ax.text(1.0, y, "unmeasured", va="center", ha="center", fontsize=8)
    ax.axvline(1, color="#555555", lw=1)
    ax.set_yticks(range(len(ratios)), [*ratios])
    ax.invert_yaxis()
    ax.set(xlabel="simulated / measured")
    handles, labels = ax.get_legend_handles_labels()
    first = dict(zip(reversed(labels), reversed(handles), strict=True))
    ax.legend([first[name] for name in dict.fromkeys(labels)], [*dict.fromkeys(labels)],
              frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1.0),
              ncols=len(first) or 1)  # fmt: skip
    return ax


def plot_tails(
    waits: Mapping[str, Sequence[float]],
    *,
    xlabel: str,
    limit: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Share of requests that waited longer than x, both axes logarithmic: the tail is a line.

    ``limit`` draws an objective as a vertical line.
    """
    from matplotlib.ticker import FuncFormatter

    ax = new_axes(ax, width_in=7.6, height_in=4.4)
    for number, (label, values) in enumerate(waits.items()):
        ordered = sorted(values)
        count = len(ordered)
        share = [100 * (count - i) / count for i in range(count)]
        places = [int(count * (1 - 0.5**k)) for k in range(1, 9) if 0.5**k * count >= 4]
        ax.plot(ordered, share, color=COLOURS[number % len(COLOURS)],
                ls=STYLES[number // len(COLOURS) % len(STYLES)], lw=1.6,
                marker=MARKERS[number % len(MARKERS)], ms=5, markevery=places,
                label=label)  # fmt: skip
    if limit is not None:
        ax.axvline(limit, color="#555555", lw=1, ls=":")
        ax.text(limit, 60, " objective", fontsize=9, color="#555555")
    ax.set(xscale="log", yscale="log", xlabel=xlabel, ylabel="share that waited longer [%]")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:g}"))
    ax.set_ylim(0.1, 110)
    starts = [sorted(values)[len(values) // 20] for values in waits.values() if values]
    if starts:
        ax.set_xlim(left=min(starts))
    ax.legend(frameon=False, fontsize=9, loc="lower left")
    return ax


def plot_replicas(
    shares: Mapping[str, Sequence[float]], *, attain: float, ax: Axes | None = None
) -> Axes:
    """Share of requests within the objectives against the number of replicas, a line per policy."""
    ax = new_axes(ax)
    for number, (label, values) in enumerate(shares.items()):
        ax.plot(range(1, len(values) + 1), [100 * v for v in values],
                color=COLOURS[number % len(COLOURS)], marker=MARKERS[number % len(MARKERS)],
                label=label)  # fmt: skip
    ax.axhline(100 * attain, color="#555555", lw=1, ls=":")
    ax.text(1, 100 * attain - 1, f"wanted: {attain:.0%}", fontsize=9, color="#555555", va="top")
    most = max((len(v) for v in shares.values()), default=1)
    ax.set(xlabel="replicas", ylabel="requests within the objectives [%]", ylim=(0, 104))
    ax.set_xticks(range(1, most + 1))
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    return ax


def plot_first_tokens(
    waits: Mapping[str, Sequence[float]],
    *,
    title: str,
    opening: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Time to first token of each request, in the order of sending, logarithmic.

    Args:
        waits: ``simulated`` (open markers) and ``measured`` (filled) to seconds.
        title: which policy.
        opening: so many first requests came at once; a line parts them from the rest.
        ax: where to draw.
    """
    ax = new_axes(ax, width_in=5.2)
    looks = {"simulated": ("o", "none", COLOURS[0]), "measured": ("x", COLOURS[1], COLOURS[1])}
    for name, values in waits.items():
        marker, face, edge = looks.get(name, ("s", "none", COLOURS[2]))
        if not values:
            ax.plot([], [], label=f"{name}: unmeasured")
            continue
        ax.scatter(range(1, len(values) + 1), values, marker=marker, s=34, label=name,
                   **({"color": face} if face != "none" else {"facecolors": face,
                                                              "edgecolors": edge}))  # fmt: skip
    if opening:
        ax.axvline(opening + 0.5, color="#555555", lw=1, ls=":")
    ax.set(yscale="log", xlabel="request", ylabel="time to first token [s]", title=title)
    ax.legend(frameon=False, fontsize=9)
    return ax
