"""Figures about the pool: who has which place, what is wasted, what is shared and found again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from turbo_lab.estimate.paging import Shares
from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, PALE = "#333333", "#e3e3e3"
PARTS = (  # field of Shares, label, colour, hatch
    ("used", "a token is there", COLOURS[0], ""),
    ("reserved", "the same request will use it", "#7fb3cc", "//"),
    ("internal", "given away, never used", COLOURS[1], ".."),
    ("free", "free, but the next request does not fit", PALE, ""),
)
Span = tuple[int, int]


def plot_pool_map(
    pools: Mapping[str, Mapping[int, tuple[Sequence[Span], int]]],
    *,
    places: int,
    ax: Axes | None = None,
) -> Axes:
    """Each pool as a strip of places: label to request to (its spans, tokens it has now).

    A request's spans have its colour, pale where no token is; grey is free.
    """
    ax = new_axes(ax, width_in=7.4, height_in=0.9 + 0.75 * len(pools))
    for row, pool in enumerate(reversed(pools.values())):
        ax.broken_barh([(0, places)], (row - 0.32, 0.64), color=PALE)
        for number, (spans, stored) in enumerate(pool.values()):
            colour, left = COLOURS[number % len(COLOURS)], stored
            for start, length in spans:
                filled = max(0, min(left, length))
                left -= filled
                ax.broken_barh([(start, length)], (row - 0.32, 0.64), color=colour, alpha=0.22,
                               lw=0)  # fmt: skip
                ax.broken_barh([(start, filled)], (row - 0.32, 0.64), color=colour, lw=0)
                ax.plot([start, start], [row - 0.32, row + 0.32], color="white", lw=0.7)
    names = [f"{label}\n{len(pool)} requests" for label, pool in pools.items()]
    ax.set_yticks(range(len(pools)), [*reversed(names)], fontsize=9)
    ax.set(xlabel="place in the pool [tokens]", xlim=(0, places))
    ax.grid(visible=False)
    ax.tick_params(axis="y", length=0)
    return ax


def plot_shares(
    rows: Mapping[str, Shares],
    *,
    running: Mapping[str, float],
    predicted: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Where the places of a pool are, one stacked bar per way to allocate.

    ``running``: requests that run at a time, written beside the bar. ``predicted``: used share by
    the closed form, drawn as a diamond.
    """
    ax = new_axes(ax, width_in=7.6, height_in=1.5 + 0.5 * len(rows))
    heights = {label: len(rows) - 1 - i for i, label in enumerate(rows)}
    for field, name, colour, hatch in PARTS:
        for label, shares in rows.items():
            left = 100 * sum(getattr(shares, f) for f, *_ in PARTS[: _index(field)])
            ax.barh(heights[label], 100 * getattr(shares, field), left=left, height=0.62,
                    color=colour, hatch=hatch, edgecolor="white", lw=0.5,
                    label=name if heights[label] == 0 else None)  # fmt: skip
    for number, (label, share) in enumerate((predicted or {}).items()):
        ax.plot(100 * share, heights[label], "D", mfc="white", mec=INK, ms=8,
                label="used, by the closed form" if number == 0 else None)  # fmt: skip
    for label, height in heights.items():
        ax.annotate(f"{running[label]:.0f} run", (101, height), va="center", fontsize=9,
                    annotation_clip=False)  # fmt: skip
    ax.set_yticks([*heights.values()], [*heights])
    ax.set(xlabel="share of the pool [%]", xlim=(0, 100))
    ax.grid(visible=False)
    ax.legend(frameon=False, fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.45, -0.22))
    return ax


def _index(field: str) -> int:
    return [name for name, *_ in PARTS].index(field)


def plot_block_sizes(
    blocks: Sequence[int],
    *,
    predicted: Sequence[float],
    counted: Sequence[float],
    entries: Sequence[float],
    ax: Axes | None = None,
) -> Axes:
    """Wasted share (left axis) and entries of a request's block table (right) by block size."""
    ax = new_axes(ax)
    ax.plot(blocks, [100 * p for p in predicted], "--", color=COLOURS[0], label="waste, predicted")
    ax.plot(blocks, [100 * c for c in counted], "o", color=COLOURS[0], label="waste, counted")
    other = ax.twinx()
    other.plot(blocks, entries, "s-", color=COLOURS[1], ms=4, label="entries per block table")
    ax.set_xscale("log", base=2)
    other.set_yscale("log")
    ax.set_xticks(blocks, [f"{b}" for b in blocks])
    ax.set(xlabel="block size [tokens]", ylabel="empty places [% of held]", ylim=(0, None))
    other.set_ylabel("entries per request")
    other.spines["top"].set_visible(False)
    lines = [line for axes in (ax, other) for line in axes.get_lines()]
    ax.legend(handles=lines, frameon=False, fontsize=9, loc="upper center")
    return ax


def plot_block_tables(
    tables: Mapping[str, Sequence[int]],
    *,
    stored: Mapping[str, int],
    block_tokens: int,
    ax: Axes | None = None,
) -> Axes:
    """Block tables: one row per request, one cell per block, with the physical block's number.

    A block that several requests use is orange in each of their rows. ``stored``: tokens that a
    request has; the last cell is filled only as far as it holds tokens.
    """
    from matplotlib.patches import Rectangle

    ax = new_axes(ax, width_in=7.4, height_in=1.1 + 0.55 * len(tables))
    users = Counter(block for table in tables.values() for block in table)
    for row, (name, table) in enumerate(reversed(tables.items())):
        left = stored[name]
        for column, block in enumerate(table):
            filled = max(0, min(left, block_tokens)) / block_tokens
            left -= block_tokens
            colour = COLOURS[1] if users[block] > 1 else COLOURS[0]
            box = {"xy": (column + 0.04, row - 0.36), "height": 0.72}
            ax.add_patch(Rectangle(width=0.92, fc="white", ec=colour, lw=1.2, **box))
            ax.add_patch(Rectangle(width=0.92 * filled, fc=colour, alpha=0.3, lw=0, **box))
            ax.text(column + 0.5, row, f"{block}", ha="center", va="center", fontsize=10)
    widest = max((len(table) for table in tables.values()), default=1)
    ax.set_xticks([c + 0.5 for c in range(widest)], [f"{c}" for c in range(widest)])
    ax.set_yticks(range(len(tables)), [*reversed(tables)])
    ax.set(xlabel=f"logical block, {block_tokens} tokens each; the number is the physical block",
           xlim=(-0.1, widest + 0.1), ylim=(-0.6, len(tables) - 0.4))  # fmt: skip
    for colour, label in ((COLOURS[1], "shared"), (COLOURS[0], "one request's own")):
        ax.plot([], [], "s", color=colour, alpha=0.5, ms=9, label=label)
    ax.legend(frameon=False, fontsize=9, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    ax.grid(visible=False)
    return ax


def plot_saving(
    cold: Mapping[int, Sequence[float]],
    warm: Mapping[int, Sequence[float]],
    *,
    law_cold: Mapping[int, float],
    law_warm: Mapping[int, float],
    prompt_tokens: int,
    ax: Axes | None = None,
) -> Axes:
    """TTFT in s against the tokens that are computed: whole prompts, and one prompt with hits.

    ``cold``: prompt length to samples. ``warm``: hit tokens to samples, of prompts of
    ``prompt_tokens``. The laws are drawn as lines.
    """
    ax = new_axes(ax)
    ax.plot([*law_cold], [*law_cold.values()], color=COLOURS[0], label="law, fitted on these")
    for number, (tokens, values) in enumerate(cold.items()):
        ax.plot([tokens] * len(values), values, "o", color=COLOURS[0], alpha=0.6,
                label="nothing cached" if number == 0 else None)  # fmt: skip
    left = {prompt_tokens - hit: value for hit, value in law_warm.items()}
    ax.plot([*left], [*left.values()], "--", color=COLOURS[1], label="predicted with hits")
    for number, (hit, values) in enumerate(warm.items()):
        ax.plot([prompt_tokens - hit] * len(values), values, "D", color=COLOURS[1], alpha=0.7,
                label=f"of {prompt_tokens:,}, rest cached" if number == 0 else None)  # fmt: skip
    ax.set(xlabel="tokens of the prompt that are computed", ylabel="time to first token [s]",
           xlim=(0, None), ylim=(0, None))  # fmt: skip
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    return ax


def plot_hit_rates(
    predicted: Mapping[int, float],
    measured: Mapping[int, float],
    *,
    knee: int,
    ax: Axes | None = None,
) -> Axes:
    """Share of the prefixes that is found again, against the number of tenants that ask in turn."""
    ax = new_axes(ax)
    ax.axvspan(0, knee + 0.5, color=COLOURS[2], alpha=0.10, lw=0)
    ax.annotate("all prefixes fit", (knee + 0.4, 8), ha="right", fontsize=9, color=COLOURS[2])
    ax.plot([*predicted], [100 * v for v in predicted.values()], "--", color=COLOURS[0],
            label="predicted: the queue of free blocks, simulated")  # fmt: skip
    label = "measured: the engine's counters" if measured else "measured: no data"
    ax.plot([*measured], [100 * v for v in measured.values()], "o", color=COLOURS[1], ms=8,
            label=label)  # fmt: skip
    ax.set(xlabel="tenants", ylabel="prefix tokens found [%]", ylim=(-4, 108))
    ax.set_xlim(min(predicted) - 0.5, max(predicted) + 0.5)
    ax.set_xticks([*predicted])
    ax.legend(frameon=False, fontsize=9, loc="upper right")
    return ax


def plot_ways(
    samples_s: Mapping[str, Sequence[float]],
    *,
    predicted_s: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """TTFT of the same work done in several ways: all samples, their median, the prediction."""
    ax = new_axes(ax, height_in=1.2 + 0.5 * len(samples_s))
    for row, (name, values) in enumerate(reversed(samples_s.items())):
        if not values:
            ax.text(0, row, " unmeasured", va="center", fontsize=9)
            continue
        ax.plot([1e3 * v for v in values], [row] * len(values), "o", color=COLOURS[0], alpha=0.45)
        ax.plot([1e3 * median(values)] * 2, [row - 0.28, row + 0.28], color=COLOURS[0], lw=2.5)
        if predicted_s and name in predicted_s:
            ax.plot(1e3 * predicted_s[name], row, "D", mfc="white", mec=COLOURS[1], ms=9, mew=1.8)
    ax.plot([], [], "o", color=COLOURS[0], alpha=0.6, label="one request (bar: median)")
    if predicted_s:
        ax.plot([], [], "D", mfc="white", mec=COLOURS[1], label="predicted")
    ax.set_yticks(range(len(samples_s)), [*reversed(samples_s)])
    ax.set(xlabel="time to first token [ms]", xlim=(0, None), ylim=(-0.6, len(samples_s) - 0.4))
    ax.legend(frameon=False, fontsize=9, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    return ax
