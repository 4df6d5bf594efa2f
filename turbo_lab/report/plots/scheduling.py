"""Figures about batching and scheduling: load curves, seats over time, pauses, waits by group."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from turbo_lab.experiment.knees import LoadPoint
from turbo_lab.metrics.definitions import arrivals, first_visible_s, last_visible_s
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WAIT, FLOW = "#c9dbe4", "#0b6e99"
MARKERS = ("o", "s", "^", "D")


def plot_load_law(
    predicted: Sequence[LoadPoint],
    measured: Sequence[LoadPoint],
    *,
    knees: Mapping[str, LoadPoint | None] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Throughput (x, tok/s) against latency (y, s): the predicted curve and the measured points.

    Each measured point is named by its load. ``knees``: name to the measured point that is ringed.
    """
    ax = new_axes(ax)
    ax.plot([p.throughput_tok_s for p in predicted], [p.latency_s for p in predicted], "--",
            color=COLOURS[1], label="predicted")  # fmt: skip
    known = [p for p in measured if p.throughput_tok_s is not None and p.latency_s is not None]
    ax.plot([p.throughput_tok_s for p in known], [p.latency_s for p in known], "o",
            color=COLOURS[0], label="measured" if known else "measured: no data")  # fmt: skip
    for point in known:
        ax.annotate(f"{point.load:g}", (point.throughput_tok_s, point.latency_s), xytext=(-5, 6),
                    textcoords="offset points", fontsize=9, ha="right")  # fmt: skip
    for i, (name, knee) in enumerate((knees or {}).items()):
        if knee is not None and knee.throughput_tok_s is not None:
            ax.plot(knee.throughput_tok_s, knee.latency_s, "sD^"[i % 3], ms=13, mfc="none", mew=1.8,
                    color=COLOURS[2 + i % 2], label=f"{name}: {knee.load:g} users")  # fmt: skip
    ax.set(xlabel="output tokens per second", ylabel="mean E2E [s]")
    ax.set_xlim(0, None)
    ax.set_ylim(0, None)
    ax.legend(frameon=False, loc="upper left")
    return ax


def plot_over_users(
    lines: Mapping[str, tuple[Sequence[tuple[float, float]], Sequence[tuple[float, float | None]]]],
    *,
    seats: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Seconds against users, both logarithmic: label to (predicted pairs, measured pairs).

    ``seats`` is drawn as a vertical line: from there on requests queue.
    """
    ax = new_axes(ax)
    for i, (label, (predicted, measured)) in enumerate(lines.items()):
        colour, known = COLOURS[i % 4], [(x, y) for x, y in measured if y is not None]
        ax.plot(*zip(*predicted, strict=True), "--", color=colour)
        name = label if known else f"{label}: unmeasured"
        ax.plot([x for x, _ in known], [y for _, y in known], MARKERS[i % 4], color=colour,
                label=name)  # fmt: skip
    if seats is not None:
        ax.axvline(seats, color="grey", lw=0.9, ls=":")
        ax.annotate("seats", (seats, 1), xycoords=("data", "axes fraction"), xytext=(4, -10),
                    textcoords="offset points", fontsize=9, color="#555555")  # fmt: skip
    ticks = sorted({x for pair in lines.values() for x, _ in pair[1]})
    ax.set(xscale="log", yscale="log", xlabel="users", ylabel="seconds (dashed: predicted)")
    ax.set_xticks(ticks, [f"{x:g}" for x in ticks])
    ax.set_xticks([], minor=True)
    ax.legend(frameon=False, loc="upper left", fontsize=9)
    return ax


def seats_of(timelines: Sequence[Timeline]) -> list[int]:
    """A seat for each request, so that no two overlap on one; the lowest that is free."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    out, fresh = [0] * len(timelines), itertools.count()
    for index in sorted(range(len(timelines)), key=lambda i: timelines[i].sent_s or 0.0):
        start = timelines[index].sent_s or 0.0
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        seat = heapq.heappop(free) if free else next(fresh)
        out[index] = seat
        heapq.heappush(busy, (last_visible_s(timelines[index]) or math.inf, seat))
    return out


def plot_gantt(groups: Mapping[str, Sequence[Timeline]], *, ax: Axes | None = None) -> Axes:
    """Who holds which seat when: one block of rows per group, one bar per request.

    Pale until the first token, full until the last. White between bars is an idle seat. Each group
    starts at 0 with its first request.
    """
    rows = {name: seats_of(runs) for name, runs in groups.items()}
    total = sum(max(seats, default=0) + 1 for seats in rows.values()) + len(rows) - 1
    ax = new_axes(ax, width_in=8.0, height_in=0.9 + 0.19 * total)
    top, labels = 0, {}
    for name, runs in groups.items():
        begin = min((t.sent_s or 0.0 for t in runs), default=0.0)
        ends = [_bar(ax, t, begin, top + seat) for t, seat in zip(runs, rows[name], strict=True)]
        height = max(rows[name], default=0) + 1
        labels[top + (height - 1) / 2] = name if runs else f"{name}\nunmeasured"
        if ends:
            ax.plot([max(ends)] * 2, [top - 0.5, top + height - 0.5], color=COLOURS[1], lw=1.6)
            ax.text(max(ends), top + height - 1, f" {max(ends):.1f} s", va="center", fontsize=9,
                    color=COLOURS[1])  # fmt: skip
        top += height + 1
    ax.set_yticks(list(labels), list(labels.values()))
    ax.invert_yaxis()
    ax.margins(x=0.06)
    ax.set_xlim(0, None)
    ax.set(xlabel="seconds; one row per seat, pale until the first token")
    ax.grid(visible=False, axis="y")
    return ax


def _bar(ax: Axes, timeline: Timeline, begin_s: float, row: int) -> float:
    sent, first, last = timeline.sent_s, first_visible_s(timeline), last_visible_s(timeline)
    if sent is None or first is None or last is None:
        return 0.0
    ax.barh(row, first - sent, left=sent - begin_s, color=WAIT, height=0.78)
    ax.barh(row, last - first, left=first - begin_s, color=FLOW, height=0.78)
    return last - begin_s


def plot_pauses(
    groups: Mapping[str, Sequence[Timeline]],
    *,
    predicted_s: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Every gap between two tokens of the given replies, when it ended, in ms on a log scale.

    ``predicted_s``: group to its predicted longest gap, a dashed line.
    """
    ax = new_axes(ax)
    for i, (name, runs) in enumerate(groups.items()):
        begin = min((t.sent_s or 0.0 for t in runs), default=0.0)
        times = [[a.t_s - begin for a in arrivals(t)] for t in runs]
        points = [(b, 1e3 * (b - a)) for ts in times for a, b in itertools.pairwise(ts)]
        label = name if points else f"{name}: unmeasured"
        ax.plot([x for x, _ in points], [max(y, 0.1) for _, y in points], MARKERS[i % 4],
                color=COLOURS[i % 4], ms=4, alpha=0.75, mew=0, label=label)  # fmt: skip
        if predicted_s and name in predicted_s:
            ax.axhline(1e3 * predicted_s[name], color=COLOURS[i % 4], ls="--", lw=1.2)
    ax.set(yscale="log", xlabel="seconds since the first request", ylabel="gap between tokens [ms]")
    ax.set_ylim(bottom=1)  # what is shorter was read from the network together
    title = "dashed: longest gap predicted"
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, title=title,
              fontsize=9, title_fontsize=9)  # fmt: skip
    return ax


def plot_groups(
    rows: Mapping[str, Mapping[str, Sequence[float]]], *, xlabel: str, ax: Axes | None = None
) -> Axes:
    """Seconds of single requests: one block per policy, one line of dots per group, median marked.

    ``rows``: policy to group to values in s. The groups keep their colour over all policies.
    """
    names = list(dict.fromkeys(g for groups in rows.values() for g in groups))
    ax = new_axes(ax, height_in=1.0 + 0.34 * sum(len(g) + 0.6 for g in rows.values()))
    y, ticks, labels = 0.0, [], []
    for policy, groups in rows.items():
        for group, values in groups.items():
            colour = COLOURS[names.index(group) % 4]
            ax.plot(values, [y] * len(values), MARKERS[names.index(group) % 4], color=colour,
                    ms=5, alpha=0.45, mew=0)  # fmt: skip
            if values:
                ax.plot([median(values)] * 2, [y - 0.36, y + 0.36], color=colour, lw=2.5)
            ticks.append(y)
            labels.append(f"{policy}: {group}" if values else f"{policy}: {group}, unmeasured")
            y += 1
        y += 0.6
    ax.set_yticks(ticks, labels)
    ax.invert_yaxis()
    ax.set_xlim(0, None)
    ax.set(xlabel=xlabel)
    return ax
