"""Figures about metrics: a stream and its readings, percentiles, where a request's time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from turbo_lab.core.errors import UsageError
from turbo_lab.metrics.metric import Metric
from turbo_lab.metrics.percentiles import certified, percentile
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WAIT, FLOW = "#c9dbe4", "#0b6e99"
PART_COLOURS = ("#7b4fa3", "#b9b9b9", "#8a8a8a", "#c2571a", "#4d7c2b", "#0b6e99")
PART_HATCHES = ("xx", "", "..", "//", "\\\\", "")  # told apart without colour too
LINE_STYLES = ("-", "--", "-.", ":")
COLUMNS = ("TTFT", "TPOT", "ITL", "E2E")


def plot_stream(
    timeline: Timeline,
    readings: Mapping[str, Mapping[str, Metric]],
    *,
    labels: Sequence[str] = (),
    ax: Axes | None = None,
) -> Axes:
    """One stream chunk by chunk, and below it what each tool reads from it.

    Args:
        timeline: the stream; times are drawn in ms after sending.
        readings: tool to its metrics (``summarize([timeline], convention=tool).metrics``); a bar
            ends where the tool's E2E ends, its pale part is the tool's TTFT.
        labels: what each chunk says, in order (default: its kind).
        ax: where to draw.
    """
    ax = new_axes(ax, width_in=8.0, height_in=1.6 + 0.34 * len(readings))
    start = timeline.sent_s or 0.0
    _draw_chunks(ax, timeline, start_s=start, labels=labels)
    end_ms = 1e3 * (max((c.t_s for c in timeline.events()), default=start) - start)
    columns = {name: end_ms * (1.14 + 0.17 * i) for i, name in enumerate(COLUMNS)}
    for name, x in columns.items():
        ax.text(x, -0.1, name, ha="center", va="center", fontsize=9, weight="bold")
    for row, metrics in enumerate(readings.values()):
        _draw_reading(ax, -1.0 - row, metrics, columns=columns)
    ax.set_yticks([0, *(-1.0 - i for i in range(len(readings)))], ["the stream", *readings])
    ax.set(xlim=(0, end_ms * 1.75), ylim=(-0.7 - len(readings), 1.1), ylabel="who reads it")
    ax.set_xlabel("ms after sending; the columns are in ms too", loc="left")
    ax.set_xticks([t for t in ax.get_xticks() if 0 <= t <= end_ms * 1.01])
    ax.grid(visible=False)
    return ax


def _draw_chunks(ax: Axes, timeline: Timeline, *, start_s: float, labels: Sequence[str]) -> None:
    """A dot per chunk, filled where it carries tokens; equal times are stacked."""
    events, stacked = timeline.events(), dict[float, int]()
    for number, chunk in enumerate(events):
        at_ms = (chunk.t_s - start_s) * 1e3
        y = 0.55 * stacked.get(at_ms, 0)
        stacked[at_ms] = stacked.get(at_ms, 0) + 1
        fill = FLOW if chunk.tokens else "white"
        ax.plot(at_ms, y, "o", mfc=fill, mec=FLOW, ms=8, clip_on=False)
        ax.axvline(at_ms, color=FLOW, lw=0.5, alpha=0.3, zorder=0)
        text = labels[number] if number < len(labels) else chunk.kind
        last = number == len(events) - 1
        ax.annotate(text, (at_ms, y), xytext=(8 if last else -8, 8 if last else -3), fontsize=9,
                    ha="left" if last else "right", textcoords="offset points")  # fmt: skip


def _draw_reading(
    ax: Axes, y: float, metrics: Mapping[str, Metric], *, columns: Mapping[str, float]
) -> None:
    """One tool's bar (pale: its TTFT; full: to its E2E) and its numbers."""
    shown = {name: _ms(metrics, f"{name.lower()}_s") for name in columns}
    first, end = shown["TTFT"], shown["E2E"]
    if first is not None and end is not None:
        ax.barh(y, first, color=WAIT, height=0.6)
        ax.barh(y, end - first, left=first, color=FLOW, height=0.6)
    for name, x in columns.items():
        value = shown[name]
        text = "none" if value is None else f"{value:.4g}"
        ax.text(x, y, text, ha="center", va="center", fontsize=9,
                color="#777777" if value is None else "black")  # fmt: skip


def _ms(metrics: Mapping[str, Metric], name: str) -> float | None:
    mean = metrics[name].mean if name in metrics else None
    return None if mean is None else mean * 1e3


def plot_cdf(
    samples: Mapping[str, Sequence[float]],
    *,
    xlabel: str,
    marks: Sequence[float] = (),
    scale: float = 1.0,
    words: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Cumulative share of requests against their time, one step line per label.

    Args:
        samples: label to values in seconds; an empty one is named as unmeasured.
        xlabel: with the unit after scaling.
        marks: percentiles to mark on the first line, hollow where too few samples certify
            them.
        scale: factor from seconds to the unit of the axis.
        words: write each mark's value beside it.
        ax: where to draw.
    """
    ax = new_axes(ax)
    for number, (label, values) in enumerate(samples.items()):
        colour = COLOURS[number % len(COLOURS)]
        style = LINE_STYLES[number % len(LINE_STYLES)]
        name = f"{label}, n = {len(values)}" if values else f"{label}: unmeasured"
        ordered = [value * scale for value in sorted(values)]
        shares = [100 * (i + 1) / len(ordered) for i in range(len(ordered))]
        xs, ys = [*ordered[:1], *ordered], [0.0, *shares][: len(ordered) + 1]
        ax.step(xs, ys if ordered else [], where="post", color=colour, ls=style, label=name)
        for p in marks if ordered and number == 0 else ():
            _mark_percentile(ax, values, p, scale=scale, colour=colour, words=words)
    ax.margins(x=0.12)  # room for the percentiles' words
    ax.set(xlabel=xlabel, ylabel="share of requests [%]", ylim=(0, 103))
    ax.legend(frameon=False, loc="lower right", fontsize=9)
    return ax


def _mark_percentile(
    ax: Axes, values: Sequence[float], p: float, *, scale: float, colour: str, words: bool
) -> None:
    at = (percentile(values, p) or 0.0) * scale
    sure = certified(len(values), p)
    ax.plot(at, p, "o", color=colour, mfc=colour if sure else "white", ms=8, zorder=3)
    if not words:
        return
    text = f"P{p:g} {at:.4g}" + ("" if sure else "  not certified")
    ax.annotate(text, (at, p), xytext=(-9, 1), ha="right", fontsize=9, textcoords="offset points")


def plot_time_split(rows: Mapping[str, Mapping[str, float]], *, ax: Axes | None = None) -> Axes:
    """Mean seconds per request by part, one stacked bar per run.

    Args:
        rows: run to its parts in seconds; all runs have the same parts, in drawing order. A part
            below zero (two clocks that disagree) is drawn as nothing and named beside the bar.
        ax: where to draw.

    Raises:
        UsageError: runs whose parts differ.
    """
    names = list(next(iter(rows.values()), {}))
    for run, parts in rows.items():
        if list(parts) != names:
            raise UsageError(f"run {run!r} has the parts {list(parts)}, the first has {names}")
    ax = new_axes(ax, width_in=8.0, height_in=1.7 + 0.6 * len(rows))
    lefts = dict.fromkeys(rows, 0.0)
    for number, name in enumerate(names):
        widths = [max(0.0, parts[name]) for parts in rows.values()]
        look = {"color": PART_COLOURS[number % 6], "hatch": PART_HATCHES[number % 6]}
        ax.barh(list(rows), widths, left=list(lefts.values()), height=0.55, label=name,
                edgecolor="white", linewidth=0, **look)  # fmt: skip
        lefts = {run: lefts[run] + w for run, w in zip(rows, widths, strict=True)}
    for run, parts in rows.items():
        below = [f"{name} below 0" for name, value in parts.items() if value < 0]
        total = ", ".join([f"{sum(parts.values()):.3g} s", *below])
        ax.text(lefts[run], run, f"  {total}", va="center", fontsize=9)
    ax.invert_yaxis()
    ax.margins(x=0.12)
    ax.set(xlabel="mean seconds per request", ylabel="run", xlim=(0, None))
    ax.grid(visible=False, axis="y")
    if rows:
        place = {"loc": "upper center", "bbox_to_anchor": (0.45, -0.22)}
        ax.legend(frameon=False, ncols=3, fontsize=9, **place)
    return ax
