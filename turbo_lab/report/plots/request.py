"""Figures of single requests: tokens over time, and where the time goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from turbo_lab.metrics.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0b6e99", "#c2571a", "#4d7c2b", "#7b4fa3")  # told apart also without colour vision


def new_axes(ax: Axes | None, *, width_in: float = 7.0, height_in: float = 3.6) -> Axes:
    """``ax``, or the axes of a new figure of readable size."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(width_in, height_in), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    return ax


def token_counts(timeline: Timeline) -> tuple[list[float], list[int]]:
    """Seconds after sending, and output tokens so far, at each chunk with visible text.

    Chunks whose token count the server did not give are left out of the count, not guessed.
    """
    start = timeline.sent_s or 0.0
    times, counts, total = [], [], 0
    for chunk in timeline.visible():
        if chunk.tokens is None:
            continue
        total += chunk.tokens
        times.append(chunk.t_s - start)
        counts.append(total)
    return times, counts


def plot_tokens(
    timelines: Mapping[str, Timeline],
    *,
    predicted: Mapping[str, tuple[float, float, int]] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Output tokens against seconds after sending, one step line per request.

    ``predicted``: label to (first token in s, seconds per token, tokens), drawn dashed.
    """
    ax, last = new_axes(ax), None
    for colour, (label, timeline) in zip(COLOURS, timelines.items(), strict=False):
        times, counts = token_counts(timeline)
        if not times:
            ax.plot([], [], color=colour, label=f"{label}: unmeasured")
            continue
        ax.step(times, counts, where="post", color=colour, label=label)
        ax.plot(times[0], counts[0], "o", color=colour, ms=4)
        last = (times[0], counts[0])
    if last:
        ax.annotate(
            f"first token {last[0] * 1e3:.0f} ms", last, xytext=(70, 4), fontsize=9,
            textcoords="offset points", arrowprops={"arrowstyle": "->", "lw": 0.8},
        )  # fmt: skip
    for label, (ttft_s, tpot_s, tokens) in (predicted or {}).items():
        ax.plot([ttft_s, ttft_s + (tokens - 1) * tpot_s], [1, tokens], "k--", lw=1, label=label)
    ax.set(xlabel="seconds after sending", ylabel="output tokens received", xlim=(0, None))
    ax.set_ylim(0, None)
    ax.legend(frameon=False, loc="upper left")
    return ax
