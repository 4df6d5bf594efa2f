"""Figures about pipelines and experts: schedules, idle share, memory, loads, what skew costs.

A task is a row (stage, micro-batch, kind, step, start_s, end_s), as the jobs return them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from turbo_lab.core.units import MiB
from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Sequence[Any]
SHADES = ("#0b6e99", "#c2571a", "#4d7c2b", "#7b4fa3", "#b08a00", "#5a6b7b", "#a23b5f", "#2a9d8f")
INK, PALE = "#333333", "#ececec"
MIN_LABEL_SHARE = 0.022  # narrower tasks carry no number


def plot_schedules(
    panels: Mapping[str, Sequence[Row]], *, stages: int, ax: Axes | None = None
) -> Axes:
    """Gantt chart: for each panel one line per stage, a box per task with its micro-batch.

    Backward tasks are hatched; what stays grey is idle. Each panel starts at its first task.
    """
    ax = new_axes(ax, width_in=8.6, height_in=0.9 + 0.34 * len(panels) * (stages + 0.8))
    whole = max((_length(rows) for rows in panels.values()), default=0.0) or 1.0
    y, ticks = 0.0, []
    for title, rows in panels.items():
        begin = min((row[4] for row in rows), default=0.0)
        ax.text(0, y - 0.62, title if rows else f"{title}: unmeasured", fontsize=9, va="center")
        for stage in range(stages):
            ticks.append((y, f"stage {stage}"))
            ax.barh(y, _length(rows), left=0, height=0.8, color=PALE, zorder=1)
            for row in rows:
                if row[0] == stage:
                    _box(ax, row, y=y, begin=begin, whole=whole)
            y += 1
        y += 0.8
    ax.set_yticks([place for place, _ in ticks], [name for _, name in ticks], fontsize=8)
    ax.set(xlabel="time [s]", xlim=(0, whole * 1.01), ylim=(y - 1.1, -1.1))
    ax.grid(visible=False)
    return ax


def _length(rows: Sequence[Row]) -> float:
    return max(row[5] for row in rows) - min(row[4] for row in rows) if rows else 0.0


def _box(ax: Axes, row: Row, *, y: float, begin: float, whole: float) -> None:
    _, batch, kind, _, start_s, end_s = row
    back = kind == "backward"
    ax.barh(y, end_s - start_s, left=start_s - begin, height=0.8, zorder=2, edgecolor="white",
            color=SHADES[batch % len(SHADES)], hatch="///" if back else None, linewidth=0.8,
            alpha=0.75 if back else 1.0)  # fmt: skip
    if end_s - start_s > MIN_LABEL_SHARE * whole:
        ax.text((start_s + end_s) / 2 - begin, y, str(batch + 1), ha="center", va="center",
                fontsize=8, color="white", zorder=3)  # fmt: skip


def plot_idle(
    formula: Mapping[str, Mapping[int, float]],
    forecast: Mapping[str, Mapping[int, float]],
    measured: Mapping[str, Mapping[int, Sequence[float]]],
    *,
    ax: Axes | None = None,
) -> Axes:
    """Idle share of all stages against the number of micro-batches, a colour for each kind of work.

    Dashed: equal stages; hollow diamonds: forecast from the stages' own times; dots: every pass.
    """
    ax = new_axes(ax, width_in=7.4, height_in=4.0)
    names = list(dict.fromkeys([*formula, *forecast, *measured]))
    for name, colour in zip(names, COLOURS, strict=False):
        line = sorted(formula.get(name, {}).items())
        ax.plot([m for m, _ in line], [100 * v for _, v in line], "--", color=colour, lw=1.3,
                label=f"{name}: equal stages")  # fmt: skip
        points = sorted(forecast.get(name, {}).items())
        ax.plot([m for m, _ in points], [100 * v for _, v in points], "D", mfc="none", mec=colour,
                ms=9, label=f"{name}: forecast from stage times")  # fmt: skip
        seen = [(m, 100 * v) for m, runs in measured.get(name, {}).items() for v in runs]
        label = f"{name}: measured" if seen else f"{name}: unmeasured"
        ax.plot([m for m, _ in seen], [v for _, v in seen], "o", color=colour, ms=4.5, alpha=0.7,
                label=label)  # fmt: skip
    ax.set(xlabel="micro-batches", ylabel="idle share of all stages [%]")
    ax.set_ylim(bottom=0)
    ax.set_xscale("log", base=2)
    ticks = sorted({m for runs in (*formula.values(), *measured.values()) for m in runs})
    shown = [m for m in ticks if m & (m - 1) == 0 or m < 4]
    ax.set_xticks(shown, [str(m) for m in shown])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=8, ncols=len(names))
    return ax


def plot_kept(
    measured: Mapping[str, Sequence[float]],
    predicted: Mapping[str, Sequence[float]],
    *,
    ax: Axes | None = None,
) -> Axes:
    """MiB of activations that each stage keeps: bars measured, diamonds predicted, by schedule."""
    ax = new_axes(ax, width_in=7.0, height_in=3.4)
    names = list(predicted)
    stages = max((len(values) for values in predicted.values()), default=0)
    width = 0.8 / max(1, stages)
    for stage in range(stages):
        xs = [n + (stage - (stages - 1) / 2) * width for n in range(len(names))]
        known = [(x, measured[n][stage] / MiB) for x, n in zip(xs, names, strict=True)
                 if measured.get(n)]  # fmt: skip
        ax.bar([x for x, _ in known], [v for _, v in known], width * 0.92, color=COLOURS[stage],
               label=f"stage {stage}")  # fmt: skip
        ax.plot(xs, [predicted[n][stage] / MiB for n in names], "D", mfc="white", mec=INK, ms=7,
                ls="none", label="predicted" if stage == 0 else None)  # fmt: skip
    ax.set_xticks(range(len(names)), names)
    ax.set(ylabel="activations kept [MiB]")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize=9)
    return ax


def plot_latency_throughput(
    points: Mapping[str, tuple[float, float]], *, alone: str, ax: Axes | None = None
) -> Axes:
    """Tokens per second of all requests (y) against ms until a request's next token (x).

    ``points``: label to (seconds per token, tokens per second). Dotted: the latency of ``alone``.
    """
    ax = new_axes(ax, width_in=7.0, height_in=4.0)
    for number, (label, (token_s, rate)) in enumerate(points.items()):
        colour = INK if label == alone else COLOURS[0]
        ax.plot(1e3 * token_s, rate, "s" if label == alone else "o", color=colour, ms=8)
        ax.annotate(label, (1e3 * token_s, rate), xytext=(9, -13 if number % 2 else 4),
                    textcoords="offset points", fontsize=9, color=colour)  # fmt: skip
    if alone in points:
        ax.axvline(1e3 * points[alone][0], ls=":", color=INK, lw=1)
    ax.set(xlabel="time until a request's next token [ms]", ylabel="tokens per second, all")
    right = max((1e3 * p[0] for p in points.values()), default=1.0)
    top = max((p[1] for p in points.values()), default=1.0)
    ax.set(xlim=(0, right * 1.3), ylim=(0, top * 1.2))
    return ax


def plot_loads(loads: Mapping[str, Sequence[int]], *, ranks: int, ax: Axes | None = None) -> Axes:
    """Tokens of every expert, a group for each router; the colour is the expert's rank.

    The thin line is the mean; figures above a group: fullest expert and fullest rank over the mean.
    """
    ax = new_axes(ax, width_in=8.4, height_in=3.8)
    top, place, centres = max((max(v) for v in loads.values()), default=1), 0, []
    for values in loads.values():
        each = len(values) // ranks
        mean = sum(values) / len(values)
        xs = range(place, place + len(values))
        ax.bar(xs, values, 0.85, color=[COLOURS[n // each % 4] for n in range(len(values))])
        ax.plot([place - 0.5, place + len(values) - 0.5], [mean, mean], color=INK, lw=1)
        rank = max(sum(values[r * each : (r + 1) * each]) for r in range(ranks)) / (mean * each)
        ax.text(place + len(values) / 2 - 0.5, top * 1.03, fontsize=8.5, ha="center", color=INK,
                s=f"expert {max(values) / mean:.2f}\nrank {rank:.2f}")  # fmt: skip
        centres.append(place + len(values) / 2 - 0.5)
        place += len(values) + 2
    for rank in range(ranks):
        ax.bar([0], [0], color=COLOURS[rank % 4], label=f"rank {rank}")
    ax.set_xticks(centres, list(loads))
    ax.set(ylabel="tokens of an expert", ylim=(0, top * 1.22))
    ax.legend(frameon=False, fontsize=9, loc="center right", bbox_to_anchor=(1.0, 0.6))
    ax.grid(visible=False)
    return ax


def plot_skew_cost(
    points: Mapping[str, tuple[float, Sequence[float]]], *, ax: Axes | None = None
) -> Axes:
    """Time of the slowest rank's experts over that of even routing, against the rank imbalance.

    ``points``: label to (largest load over the mean, the ratio in every pass). Dashed: y = x.
    """
    ax = new_axes(ax, width_in=6.4, height_in=4.0)
    right = max([1.0, *(x for x, _ in points.values())]) * 1.08
    ax.plot([1, right], [1, right], "--", color="grey", lw=1.2, label="predicted: the same ratio")
    for number, (label, (x, ratios)) in enumerate(points.items()):
        colour = COLOURS[number % len(COLOURS)]
        ax.plot([x] * len(ratios), ratios, "o", color=colour, ms=4, alpha=0.45)
        if ratios:
            ax.plot(x, median(ratios), "s", color=colour, ms=8)
            ax.annotate(label, (x, median(ratios)), xytext=(8, -10), fontsize=9, color=colour,
                        textcoords="offset points")  # fmt: skip
    ax.set(xlabel="largest rank's load over the mean", ylabel="slowest rank, over even routing",
           xlim=(0.92, right * 1.06))  # fmt: skip
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    return ax


def plot_layout_bytes(
    predicted: Mapping[str, float], measured: Mapping[str, float], *, ax: Axes | None = None
) -> Axes:
    """KiB that leave a rank for one token, by layout: bars measured, diamonds predicted."""
    ax = new_axes(ax, width_in=7.0, height_in=2.6)
    names = list(predicted)
    for y, name in enumerate(names):
        if name in measured:
            ax.barh(y, measured[name] / 1024, 0.6, color=COLOURS[y % 4])
        ax.plot(predicted[name] / 1024, y, "D", mfc="white", mec=INK, ms=8,
                label="predicted" if y == 0 else None)  # fmt: skip
    ax.set_yticks(range(len(names)), names)
    ax.set(xlabel="KiB that leave a rank for each token", ylim=(len(names) - 0.5, -0.5))
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    return ax
