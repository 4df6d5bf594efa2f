"""Figures of one benchmark run: how its latencies spread, and one request from inside."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from turbo_lab.core.units import format_seconds
from turbo_lab.metrics.percentiles import certified, percentile
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.report.plots.metrics import plot_cdf
from turbo_lab.report.plots.request import COLOURS, new_axes, token_counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKS = (50, 95, 99)
BELOW_MS_S = 1.0  # Times are shown in ms while all of them are shorter than this.
WAITING, OBJECTIVE = "#f0dfd0", "#b3261e"


def time_unit(values_s: Sequence[float]) -> tuple[str, float]:
    """``("ms", 1000)`` while all values are short, else ``("s", 1)``."""
    return ("ms", 1e3) if max(values_s, default=0.0) < BELOW_MS_S else ("s", 1.0)


def plot_latency(
    values_s: Sequence[float], *, name: str, limit_s: float | None = None, ax: Axes | None = None
) -> Axes:
    """Cumulative share of requests over one latency, with its percentiles and its objective.

    Args:
        values_s: one value per successful request, in seconds.
        name: of the metric, for the axis.
        limit_s: its objective, drawn as a vertical line.
        ax: where to draw.
    """
    unit, scale = time_unit([*values_s, limit_s or 0.0])
    look = {"marks": MARKS, "words": False, "xlabel": f"{name} in {unit}", "scale": scale}
    ax = plot_cdf({name: values_s}, **look, ax=ax)
    if legend := ax.get_legend():
        legend.remove()
    words = [percentile_words(values_s, p, scale=scale) for p in MARKS]
    right = limit_s is None or limit_s <= max(values_s)
    place = (0.98, "right") if right else (0.5, "left")
    paper = {"fc": "white", "ec": "none", "alpha": 0.7, "pad": 1}
    ax.text(place[0], 0.04, "\n".join(words), ha=place[1], va="bottom", fontsize=8.5,
            transform=ax.transAxes, bbox=paper)  # fmt: skip
    if limit_s is not None:
        ax.axvline(limit_s * scale, color=OBJECTIVE, lw=1, ls="--")
        text = f"objective {limit_s * scale:g} {unit}"
        ax.set_title(text, loc="right", color=OBJECTIVE, fontsize=8.5)
    ax.set_title(f"n = {len(values_s)}", loc="left", fontsize=8.5)
    return ax


def percentile_words(values_s: Sequence[float], p: float, *, scale: float) -> str:
    """``p95 12.3 *``; the star where too few samples certify it."""
    star = "" if certified(len(values_s), p) else " *"
    return f"p{p:g} {(percentile(values_s, p) or 0.0) * scale:.4g}{star}"


def plot_request(timeline: Timeline, *, ax: Axes | None = None) -> Axes:
    """One request: how long nothing came, then its tokens one by one.

    Where the server counts no tokens, chunks with text are drawn and the axis says so.
    """
    ax = new_axes(ax)
    times, counts = token_counts(timeline)
    what = "output tokens received"
    if not times:
        start = timeline.sent_s or 0.0
        times = [chunk.t_s - start for chunk in timeline.visible()]
        counts, what = list(range(1, len(times) + 1)), "chunks received (tokens unknown)"
    unit, scale = time_unit(times)
    shown = [t * scale for t in times]
    if shown:
        ax.axvspan(0, shown[0], color=WAITING, lw=0)
        ax.step(shown, counts, where="post", color=COLOURS[0])
        ax.plot(shown, counts, "o", color=COLOURS[0], ms=3)
        ax.set_title(request_words(times, counts), loc="left")
    ax.yaxis.get_major_locator().set_params(integer=True)
    ax.set(xlabel=f"{unit} after sending (shaded: nothing received yet)", ylabel=what)
    ax.set_xlim(0, None)
    ax.set_ylim(0, None)
    return ax


def request_words(times_s: Sequence[float], counts: Sequence[int]) -> str:
    """The stream in a sentence: first token, then how many more in which time."""
    first = f"first chunk after {format_seconds(times_s[0])}"
    more, rest_s = counts[-1] - counts[0], times_s[-1] - times_s[0]
    if more < 1:
        return first
    each = format_seconds(rest_s / more)
    return f"{first}, then {more} more in {format_seconds(rest_s)} ({each} each)"


def longest_gap_s(timeline: Timeline) -> float | None:
    """Longest silence between two chunks with text, in seconds; None below two chunks."""
    times = [chunk.t_s for chunk in timeline.visible()]
    return max((b - a for a, b in itertools.pairwise(times)), default=None)


def latency_words(samples_s: Mapping[str, Sequence[float]]) -> str:
    """The distributions in words, for those who do not see them."""
    parts = []
    for name, values in samples_s.items():
        ordered = sorted(values)
        parts.append(
            f"{name}: {format_seconds(ordered[0])} to {format_seconds(ordered[-1])}, "
            f"median {format_seconds(ordered[len(ordered) // 2])}, n = {len(ordered)}"
        )
    return "Cumulative share of requests over latency. " + "; ".join(parts)
