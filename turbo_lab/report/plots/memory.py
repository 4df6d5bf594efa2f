"""Figures about memory: bytes per token, growth, wrong formulas, blocks, what fits on a card."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turbo_lab.core.units import KiB, MiB
from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE_STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
INK, PALE = "#333333", "#d9d9d9"


@dataclass(frozen=True)
class TokenRow:
    """One model in ``plot_bytes_per_token``: bytes of a recent token, and of a very old one."""

    label: str
    recent_bytes: int
    old_bytes: int


def plot_bytes_per_token(rows: Sequence[TokenRow], *, ax: Axes | None = None) -> Axes:
    """KiB that one token keeps, one line per model, on a log axis.

    A filled dot is a recent token; an open one (where it differs) a token that has left every
    window, so that only the growing layers still keep it.
    """
    ax = new_axes(ax, width_in=7.4, height_in=0.9 + 0.34 * len(rows))
    for y, row in enumerate(reversed(rows)):
        recent, old = row.recent_bytes / KiB, row.old_bytes / KiB
        ax.plot([old, recent], [y, y], color=COLOURS[0], lw=2, alpha=0.5)
        if old < recent:
            ax.plot(old, y, "o", mfc="white", mec=COLOURS[0], ms=7)
        ax.plot(recent, y, "o", color=COLOURS[0], ms=7)
        ax.annotate(f"{recent:,.0f} KiB", (recent, y), xytext=(8, 0), fontsize=9,
                    textcoords="offset points", va="center")  # fmt: skip
    ax.set_yticks(range(len(rows)), [row.label for row in reversed(rows)])
    ax.set_xscale("log", base=2)
    low = min(row.old_bytes for row in rows) / KiB
    high = max(row.recent_bytes for row in rows) / KiB
    ax.set(xlabel="keys and values of one token in bf16 [KiB]", xlim=(low / 1.5, high * 3))
    _plain_ticks(ax.xaxis, [2.0**n for n in range(2, 13, 2)])
    ax.plot([], [], "o", color=COLOURS[0], label="recent token")
    ax.plot([], [], "o", mfc="white", mec=COLOURS[0], label="token that left the windows")
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    return ax


def plot_growth(
    curves: Mapping[str, tuple[Sequence[int], Sequence[float]]], *, ax: Axes | None = None
) -> Axes:
    """Bytes of one conversation against its length: label to (tokens, bytes), both log axes."""
    ax = new_axes(ax, width_in=7.4, height_in=4.2)
    _curves(ax, {k: (x, [y / MiB for y in ys]) for k, (x, ys) in curves.items()})
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    _token_ticks(ax, [t for tokens, _ in curves.values() for t in tokens])
    marks = [4**n for n in range(10)]
    names = [f"{m} MiB" if m < 1024 else f"{m // 1024} GiB" for m in marks]
    ax.set_yticks(marks, names)
    ax.set_yticks([], minor=True)
    sizes = [y / MiB for _, ys in curves.values() for y in ys]
    ax.set(xlabel="context of one conversation [tokens]", ylabel="memory it holds [MiB, GiB]",
           ylim=(min(sizes) / 1.4, max(sizes) * 1.4))  # fmt: skip
    return ax


def plot_error_factors(
    factors: Mapping[str, Mapping[str, float | None]], *, ax: Axes | None = None
) -> Axes:
    """Wrong formulas (rows) on models (columns): claimed / right, coloured by its logarithm.

    Cells that come out right by luck are white and say ``ok``; a dash: the model has no such part.
    """
    formulas, models = [*factors], [*next(iter(factors.values()))]
    ax = new_axes(ax, width_in=8.6, height_in=1.5 + 0.42 * len(formulas))
    table = [
        [math.nan if (v := factors[f][m]) is None else math.log2(v) for m in models]
        for f in formulas
    ]
    ax.imshow(table, cmap="PuOr_r", vmin=-4, vmax=4, aspect="auto")
    for y, formula in enumerate(formulas):
        for x, model in enumerate(models):
            value = factors[formula][model]
            dark = value is not None and abs(math.log2(value)) > 2.4
            ax.text(x, y, _factor_text(value), ha="center", va="center", fontsize=9,
                    color="white" if dark else INK)  # fmt: skip
    ax.set_xticks(range(len(models)), models, rotation=30, ha="right", fontsize=9)
    ax.set_yticks(range(len(formulas)), formulas, fontsize=9)
    ax.set(xlabel="model", ylabel="wrong formula")
    ax.grid(visible=False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def _factor_text(value: float | None) -> str:
    if value is None:
        return "–"
    if abs(value - 1) < 5e-4:
        return "ok"
    return f"{value:.0f}×" if value >= 20 else f"{value:.2g}×" if value >= 1.2 else f"{value:.2f}×"


def plot_blocks(
    block_tokens: int,
    *,
    longest: int,
    measured: Mapping[int, float | None] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Tokens reserved for one conversation against tokens it has: a staircase of whole blocks.

    ``measured``: tokens of a conversation to the tokens that the engine had reserved for it.
    """
    ax = new_axes(ax)
    steps = range(0, longest + block_tokens, block_tokens)
    ax.step(steps, steps, where="pre", color=COLOURS[0], label="reserved: whole blocks")
    ax.plot([0, longest], [0, longest], "--", color=INK, lw=1, label="used: one place per token")
    read = {tokens: held for tokens, held in (measured or {}).items() if held is not None}
    label = "read from the engine" if read or not measured else "the engine's number: unmeasured"
    ax.plot([*read], [*read.values()], "D", color=COLOURS[1], ms=8, label=label)
    ax.set(xlabel="tokens of one conversation", ylabel="places held in the pool [tokens]",
           xlim=(0, longest), ylim=(0, None))  # fmt: skip
    ax.set_xticks(steps)
    ax.legend(frameon=False, loc="upper left")
    return ax


def plot_what_fits(
    curves: Mapping[str, tuple[Sequence[int], Sequence[tuple[int, int]]]],
    *,
    chosen_tokens: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Users against context length: label to (tokens, (low, high) users), drawn as bands.

    ``chosen_tokens`` marks one length. Lengths at which nobody fits are left out: the axis is
    logarithmic.
    """
    ax = new_axes(ax, width_in=7.4, height_in=4.2)
    for number, (label, (tokens, users)) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        high = [pair[1] or math.nan for pair in users]
        low = [max(pair[0], 0.5) for pair in users]
        ax.fill_between(tokens, low, high, color=colour, alpha=0.18, lw=0)
        ax.plot(tokens, high, LINE_STYLES[number % len(LINE_STYLES)], color=colour, label=label)
    if chosen_tokens is not None:
        ax.axvline(chosen_tokens, color=INK, lw=1, ls=":")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=10)
    ax.axhline(1, color=INK, lw=1)
    _token_ticks(ax, [t for tokens, _ in curves.values() for t in tokens])
    _plain_ticks(ax.yaxis, [1, 10, 100, 1000, 10000])
    ax.set(xlabel="context of each conversation [tokens]", ylabel="conversations at once",
           ylim=(0.8, None))  # fmt: skip
    ax.legend(frameon=False, fontsize=9, loc="upper right")
    return ax


def plot_gains(
    curves: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    *,
    ideal: float,
    ax: Axes | None = None,
) -> Axes:
    """How many times more conversations fit, against their length; ``ideal`` is drawn dashed."""
    ax = new_axes(ax, width_in=7.4, height_in=4.0)
    ax.axhline(ideal, color=INK, ls="--", lw=1)
    ax.annotate(f"{ideal:g}× as often claimed", (0, ideal), xycoords=("axes fraction", "data"),
                xytext=(4, 4), textcoords="offset points", fontsize=9)  # fmt: skip
    _curves(ax, curves)
    ax.set_xscale("log", base=2)
    _token_ticks(ax, [t for tokens, _ in curves.values() for t in tokens])
    ax.set(xlabel="context of each conversation [tokens]",
           ylabel="conversations that fit, relative to bf16 [ratio]",
           ylim=(0.9, ideal + 0.15))  # fmt: skip
    return ax


def _curves(ax: Axes, curves: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> None:
    """One line per label, named beside its end (told apart without colour too)."""
    ends = sorted((ys[-1], label, xs[-1]) for label, (xs, ys) in curves.items())
    for number, (label, (xs, ys)) in enumerate(curves.items()):
        ax.plot(xs, ys, color=COLOURS[number % len(COLOURS)],
                ls=LINE_STYLES[number % len(LINE_STYLES)], label=label)  # fmt: skip
    order = {label: place for place, (_, label, _) in enumerate(reversed(ends))}
    handles, labels = ax.get_legend_handles_labels()
    pairs = sorted(zip(labels, handles, strict=True), key=lambda pair: order[pair[0]])
    ax.legend([h for _, h in pairs], [name for name, _ in pairs], frameon=False, fontsize=9,
              loc="center left", bbox_to_anchor=(1.0, 0.5))  # fmt: skip


def _plain_ticks(axis: object, values: Sequence[float]) -> None:
    """Ticks as plain numbers instead of powers, at those of ``values`` that the axis shows."""
    axis.set_ticks(list(values), [f"{v:,g}" for v in values])  # type: ignore[attr-defined]
    axis.set_ticks([], minor=True)  # type: ignore[attr-defined]


def _token_ticks(ax: Axes, tokens: Sequence[int]) -> None:
    low, high = min(tokens), max(tokens)
    marks = [2**n for n in range(30) if low <= 2**n <= high]
    marks = marks[:: max(1, -(-len(marks) // 8))]
    ax.set_xticks(marks, [f"{m // 1024}k" if m >= 1024 else str(m) for m in marks])
    ax.set_xticks([], minor=True)
    ax.set_xlim(low, high)
