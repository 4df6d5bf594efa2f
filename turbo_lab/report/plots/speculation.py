"""Figures about guessing tokens: cost of a check, break-even map, forecasts, acceptance, crowds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from turbo_lab.estimate.speculation import rates_from_acceptance, speedup_map
from turbo_lab.estimate.verification import CostOfCheck
from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = ("o", "s", "^", "D")
LEVELS = (0.25, 0.35, 0.5, 0.7, 0.85, 1.0, 1.25, 1.75, 2.5, 3.5, 5.0)
MOST_NAMES = 8
WIN, LOSE, INK = "#0b6e99", "#c2571a", "#333333"


@dataclass(frozen=True)
class MapPoint:
    """A measured class on the map: at this acceptance and length it was so much faster."""

    label: str
    acceptance: float
    draft_tokens: int
    measured: float
    predicted: float


def plot_check_cost(
    predicted: Mapping[int, float],
    measured: Mapping[int, Sequence[float]],
    *,
    ax: Axes | None = None,
) -> Axes:
    """Cost of a step that checks k guesses, in plain steps, against k.

    ``predicted``: k to v(k) from batches of users; ``measured``: k to the values of speculative
    steps. The dashed grey lines are the two extremes: checking is free, and a token costs a step.
    """
    ax = new_axes(ax)
    xs = sorted(predicted)
    top = max([*predicted.values(), *(v for vs in measured.values() for v in vs), 2.0])
    longest = max([*xs, *measured, 1])
    ax.plot(xs, [predicted[k] for k in xs], "-", marker="o", mfc="white", color=COLOURS[0],
            label="plain batches of k + 1 users")  # fmt: skip
    known = [(k, v) for k, values in measured.items() for v in values]
    label = "steps that check k guesses" if known else "checking steps: unmeasured"
    ax.plot([k for k, _ in known], [v for _, v in known], "D", color=COLOURS[1], ms=7, label=label)
    ax.plot([0, longest], [1, 1], "--", color="grey", lw=1)
    ax.plot([0, longest], [1, longest + 1], "--", color="grey", lw=1)
    ax.annotate("free", (longest, 1), xytext=(-4, 4), textcoords="offset points", ha="right",
                fontsize=9, color=INK)  # fmt: skip
    ax.annotate("no gain possible", (0.7 * top - 1, 0.7 * top), xytext=(7, -3), fontsize=9,
                textcoords="offset points", color=INK)  # fmt: skip
    ax.set(xlabel="k, guesses checked in one step", ylabel="cost [plain steps]")
    ax.set_xlim(0, longest * 1.04)
    ax.set_ylim(0, top * 1.25)
    ax.legend(frameon=False, loc="upper left", fontsize=9)
    return ax


def plot_break_even(
    points: Sequence[MapPoint],
    *,
    draft_cost: float,
    verify_cost: CostOfCheck,
    lengths: Sequence[int],
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Speed-up over acceptance (x) and guesses per step (y); the thick line is break-even.

    The ground is the formula with these costs; a point has the colour of its own measurement, so
    one that stands out from its ground was not forecast. Each class has a marker; where there are
    few points, they carry their name and numbers: measured (forecast).
    """
    import matplotlib as mpl

    ax = new_axes(ax, width_in=6.4, height_in=4.2)
    alphas = np.linspace(0, 1, 101)
    grid = speedup_map(alphas.tolist(), draft_tokens=lengths, draft_costs=[draft_cost],
                       verify_cost=verify_cost)[:, :, 0].T  # fmt: skip
    norm = mpl.colors.TwoSlopeNorm(vcenter=0.0, vmin=np.log2(LEVELS[0]), vmax=np.log2(LEVELS[-1]))
    look = {"cmap": "RdBu", "norm": norm}
    ground = ax.contourf(alphas, lengths, np.log2(grid), levels=np.log2(LEVELS), extend="both",
                         alpha=0.75, **look)  # fmt: skip
    if grid.min() < 1 < grid.max():
        ax.contour(alphas, lengths, grid, levels=[1.0], colors=INK, linewidths=2.2)
    kinds = list(dict.fromkeys(point.label for point in points))
    for kind in kinds:
        mine = [p for p in points if p.label == kind]
        ax.scatter([p.acceptance for p in mine], [p.draft_tokens for p in mine], s=90, label=kind,
                   c=[np.log2(p.measured) for p in mine], marker=MARKERS[kinds.index(kind) % 4],
                   edgecolors=INK, linewidths=1.2, zorder=3, **look)  # fmt: skip
    if len(points) <= MOST_NAMES:
        _name_points(ax, points)
    else:
        ax.legend(frameon=False, ncols=len(kinds), loc="upper center", fontsize=9)
    bar = ax.figure.colorbar(ground, ax=ax, ticks=np.log2(LEVELS[::2]))
    bar.ax.set_yticklabels([f"{level:g}" for level in LEVELS[::2]])
    bar.set_label("speed-up")
    ax.set(xlabel="acceptance per token", ylabel="guesses per step", title=title,
           xlim=(-0.02, 1.02), ylim=(min(lengths) - 0.3, max(lengths) + 1.7))  # fmt: skip
    ax.set_yticks(list(lengths))
    ax.grid(visible=False)
    return ax


def _name_points(ax: Axes, points: Sequence[MapPoint]) -> None:
    """Names above and below in turn and in two ranks, so that those of one row stay readable."""
    rows: dict[int, int] = {}
    for point in sorted(points, key=lambda p: p.acceptance):
        place = rows.get(point.draft_tokens, 0)
        rows[point.draft_tokens] = place + 1
        text = f"{point.label} {point.measured:.2f} ({point.predicted:.2f})"
        side = "right" if point.acceptance > 0.8 else "left" if point.acceptance < 0.2 else "center"
        ax.annotate(text, (point.acceptance, point.draft_tokens), textcoords="offset points",
                    xytext=(0, (9, -17, 23, -31)[place % 4]), ha=side, fontsize=8, zorder=4,
                    bbox={"fc": "white", "ec": "none", "alpha": 0.7, "pad": 0.8})  # fmt: skip


def plot_forecasts(
    rows: Mapping[str, Mapping[str, tuple[float, float | None]]],
    *,
    noise: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Speed-up of every class on every arm: bars measured, diamonds forecast, the line is 1.

    ``rows``: arm to class to (forecast, measured); None is unmeasured. ``noise``: relative spread
    of two runs without speculation, a grey band around 1.
    """
    total = sum(len(classes) for classes in rows.values()) + len(rows) - 1
    ax = new_axes(ax, width_in=7.2, height_in=1.1 + 0.34 * total)
    y, ticks, names, ends = 0.0, [], [], [1.0]
    for arm, classes in rows.items():
        for kind, (forecast, measured) in classes.items():
            if measured is not None:
                ax.barh(y, measured - 1, left=1, height=0.7,
                        color=WIN if measured >= 1 else LOSE, alpha=0.85)  # fmt: skip
                ends += [measured]
            ax.plot(forecast, y, "D", color=INK, mfc="white", ms=7, mew=1.6, zorder=3)
            ends += [forecast]
            text = "unmeasured" if measured is None else f"{measured:.2f}"
            ax.annotate(text, (max(forecast, measured or 0, 1), y), xytext=(9, -3), fontsize=9,
                        textcoords="offset points")  # fmt: skip
            ticks.append(y)
            names.append(f"{arm}: {kind}")
            y += 1
        y += 1
    if noise:
        ax.axvspan(1 - noise, 1 + noise, color="grey", alpha=0.2, lw=0)
    ax.axvline(1, color=INK, lw=1.2)
    ax.set_yticks(ticks, names)
    ax.invert_yaxis()
    ax.set_xlim(min(0.4, *ends) * 0.9, max(ends) * 1.12)
    ax.set(xlabel="speed-up over the server that never guesses (diamond: forecast)")
    ax.grid(visible=False, axis="y")
    return ax


def plot_positions(
    rates: Mapping[str, Sequence[float]],
    *,
    constant: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Share of guesses of which the first i tokens were accepted, against i.

    ``rates``: label to shares by position. ``constant``: label to the one acceptance per token that
    gives as many tokens; it is drawn dashed as ``a, a^2, ...``.
    """
    ax = new_axes(ax)
    for i, (label, shares) in enumerate(rates.items()):
        colour, places = COLOURS[i % 4], range(1, len(shares) + 1)
        name = label if len(shares) else f"{label}: unmeasured"
        ax.plot(list(places), list(shares), MARKERS[i % 4], ls="-", lw=1, color=colour, label=name)
        if constant and label in constant and len(shares):
            law = rates_from_acceptance(constant[label], draft_tokens=len(shares))
            ax.plot(list(places), law, "--", color=colour, lw=1.2)
    ax.set(xlabel="position in the guess", ylabel="share accepted up to here", ylim=(0, 1.03))
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(frameon=False, fontsize=9, title="dashed: one acceptance for all positions",
              title_fontsize=9, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)  # fmt: skip
    return ax


def plot_crowds(
    rates: Mapping[str, Mapping[str, Mapping[int, float]]],
    *,
    predicted: Mapping[str, Mapping[str, Mapping[int, float]]] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Tokens per second of all users together against their number.

    ``rates``: class of prompts to arm to users to tokens per second; a colour per arm, a line style
    per class. ``predicted``: the same shape, hollow diamonds.
    """
    ax = new_axes(ax)
    arms = list(dict.fromkeys(arm for lines in rates.values() for arm in lines))
    for g, (kind, lines) in enumerate(rates.items()):
        for arm, line in lines.items():
            i = arms.index(arm)
            name = f"{kind}, {arm}" + ("" if line else ": unmeasured")
            ax.plot(sorted(line), [line[n] for n in sorted(line)], MARKERS[i % 4], label=name,
                    ls=("-", "--", ":")[g % 3], color=COLOURS[i % 4])  # fmt: skip
            forecast = (predicted or {}).get(kind, {}).get(arm, {})
            ax.plot(list(forecast), list(forecast.values()), "D", mfc="none", mew=1.6, ms=11,
                    color=COLOURS[i % 4])  # fmt: skip
    users = sorted({n for lines in rates.values() for line in lines.values() for n in line})
    ax.set(xlabel="users at once", ylabel="tokens per second, all users", ylim=(0, None))
    if users:
        ax.set_xticks(users)
    ax.legend(frameon=False, loc="upper left", ncols=max(1, len(rates)), fontsize=9)
    return ax
