"""Figures about merging in the network: the cliff, step times, stolen cores, where it pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, PALE = "#333333", "#8c8c8c"
MARKERS = ("o", "s", "^", "D")
LEAST_KL = 1e-7


def plot_cliff(
    lines: Mapping[str, Sequence[tuple[float, float, float, float]]],
    *,
    levels: Mapping[str, float],
    artifact: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """KL divergence against the width of one table, one line per width that is swept.

    ``lines``: (bits, KL, low, high) by name. ``levels``: horizontal lines, such as a control.
    ``artifact``: (bits, KL) of another model, drawn pale and dashed.
    """
    ax = new_axes(ax, height_in=4.0)
    for number, (name, points) in enumerate(lines.items()):
        rows = sorted(points)
        bits, kl = [r[0] for r in rows], [max(r[1], LEAST_KL) for r in rows]
        spans = [[max(k - max(r[2], LEAST_KL), 0) for k, r in zip(kl, rows, strict=True)],
                 [max(r[3] - k, 0) for k, r in zip(kl, rows, strict=True)]]  # fmt: skip
        ax.errorbar(bits, kl, yerr=spans, lw=1.3, ms=5, capsize=2, label=name,
                    marker=MARKERS[number % 4], color=COLOURS[number % 4])  # fmt: skip
    for name, points in (artifact or {}).items():
        bits, kl = zip(*sorted(points), strict=True)
        ax.plot(bits, kl, "--x", color=PALE, lw=1.1, ms=5, label=name)
    for name, level in levels.items():
        ax.axhline(level, color=INK, lw=0.9, ls=":")
        ax.annotate(name, (1.0, level), xycoords=("axes fraction", "data"), ha="right",
                    va="bottom", fontsize=8.5, color=INK)  # fmt: skip
    ax.set(yscale="log", xlabel="bits of the width that is varied", ylabel="KL [nat/token]")
    ax.invert_xaxis()
    ax.legend(frameon=False, fontsize=8.5, loc="upper left")
    return ax


def plot_steps(table: Sequence[Mapping[str, Any]], *, ax: Axes | None = None) -> Axes:
    """Measured step time of every strategy by number of hosts; hollow marks are predictions."""
    ax = new_axes(ax, height_in=4.0)
    hosts = sorted({row["hosts"] for row in table})
    names = list(dict.fromkeys(row["strategy"] for row in table))
    width = 0.8 / max(1, len(names))
    for number, name in enumerate(names):
        rows = {row["hosts"]: row for row in table if row["strategy"] == name}
        places = [i + (number - (len(names) - 1) / 2) * width for i, n in enumerate(hosts)
                  if n in rows]  # fmt: skip
        found = [rows[n] for n in hosts if n in rows]
        ax.bar(places, [r["step_s"] for r in found], width=0.9 * width, alpha=0.75, label=name,
               color=COLOURS[number % 4])  # fmt: skip
        ax.plot(places, [r["fitted_s"] for r in found], "o", mfc="white", mec=INK, ms=6,
                label="predicted" if number == len(names) - 1 else None)  # fmt: skip
        for place, row in zip(places, found, strict=True):
            top = max(row["step_s"], row["fitted_s"])
            ax.annotate(f"{row['step_s']:.2f}", (place, top), ha="center", va="bottom",
                        fontsize=7.5, xytext=(0, 6), textcoords="offset points")  # fmt: skip
    if not table:
        ax.text(0.5, 0.5, "unmeasured", ha="center", transform=ax.transAxes)
    ax.set_xticks(range(len(hosts)), [f"{n} hosts" for n in hosts])
    ax.set(ylabel="seconds per decode step", xlabel="hosts that share the context")
    ax.margins(y=0.12)
    ax.grid(visible=False, axis="x")
    if table:
        ax.legend(frameon=False, fontsize=8.5, loc="upper left")
    return ax


def plot_stolen(
    groups: Mapping[str, Sequence[tuple[float, float]]], *, ax: Axes | None = None
) -> Axes:
    """Slow-down of a product against the share of all cores that is taken; the line is 1/(1 - x).

    ``groups``: (share of all cores, slow-down) by name.
    """
    ax = new_axes(ax, height_in=3.8)
    groups = {name: points for name, points in groups.items() if points}
    most = max((x for points in groups.values() for x, _ in points), default=0.5)
    grid = [most * i / 60 for i in range(61)]
    ax.plot(grid, [1 / (1 - x) for x in grid], color=INK, lw=1.2, label="loss of cores alone")
    for number, (name, points) in enumerate(groups.items()):
        xs, ys = zip(*sorted(points), strict=True)
        ax.plot(xs, ys, MARKERS[number % 4], ls="--", lw=0.8, ms=6, label=name,
                color=COLOURS[number % 4])  # fmt: skip
    ax.set(xlabel="share of all cores that the collective holds", ylabel="times as long")
    ax.legend(frameon=False, fontsize=8.5, loc="upper left")
    return ax


def plot_pays(
    contexts: Sequence[float], curves: Mapping[str, Sequence[float]], *, alone: Sequence[float],
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Attention and merges of a step against the context, in ms; ``alone``: one host, no merges."""
    ax = new_axes(ax, height_in=3.8)
    ax.plot(contexts, [1e3 * s for s in alone], color=INK, lw=1.4, label="one host")
    for number, (name, seconds) in enumerate(curves.items()):
        ax.plot(contexts, [1e3 * s for s in seconds], lw=1.3, label=name,
                color=COLOURS[number % 4], ls=("-", "--", "-.", ":")[number % 4])  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="tokens of context", ylabel="ms per step")
    ax.legend(frameon=False, fontsize=8.5)
    return ax
