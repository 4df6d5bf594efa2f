"""Figures of benchmark runs: CDFs, resource curves, throughput against latency, forest plot."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turbo_lab.client.resources import column
from turbo_lab.experiment.knees import LoadPoint
from turbo_lab.report.plots.request import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLES = ("-", "--", "-.", ":")


def plot_cdf(
    samples: Mapping[str, Sequence[float]],
    *,
    limits_s: Mapping[str, float] | None = None,
    unit: str = "ms",
    ax: Axes | None = None,
) -> Axes:
    """Share of requests at or below a latency, one step line per label; samples in seconds.

    ``limits_s``: objectives as vertical lines, by the label they belong to.
    """
    ax, scale = new_axes(ax), 1e3 if unit == "ms" else 1.0
    for index, (label, values) in enumerate(samples.items()):
        style = {"color": COLOURS[index % 4], "ls": STYLES[index % 4]}
        ordered = sorted(v * scale for v in values)
        if not ordered:
            ax.plot([], [], label=f"{label}: no data", **style)
            continue
        shares = [(i + 1) / len(ordered) for i in range(len(ordered))]
        ax.step([ordered[0], *ordered], [0.0, *shares], where="post", label=label, **style)
        if limits_s and label in limits_s:
            ax.axvline(limits_s[label] * scale, color=style["color"], lw=0.8)
    ax.set(xlabel=f"latency in {unit}", ylabel="share of requests", ylim=(0, 1.01))
    ax.set_xlim(0, None)
    ax.legend(frameon=False, loc="lower right")
    return ax


@dataclass(frozen=True)
class Curve:
    """One line of the resource figure: where it is in a sample, its label and its scale."""

    path: tuple[str, ...]
    label: str
    scale: float = 1.0


RESOURCE_CURVES = {
    "cores": (
        Curve(("processes", "client", "cores"), "client"),
        Curve(("processes", "server", "cores"), "server"),
    ),
    "GiB": (
        Curve(("processes", "server", "resident_bytes"), "server resident", 2**-30),
        Curve(("page_cache_bytes",), "page cache", 2**-30),
    ),
    "requests": (
        Curve(("engine", "vllm:num_requests_running"), "running"),
        Curve(("engine", "vllm:num_requests_waiting"), "waiting"),
        Curve(("engine", "mock:requests_running"), "running"),
    ),
    "KV cache share": (
        Curve(("engine", "vllm:kv_cache_usage_perc"), "KV cache in use"),
        Curve(("engine", "vllm:gpu_cache_usage_perc"), "KV cache in use"),
    ),
}


def resource_panels(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[str, list, list]]]:
    """What can be drawn: axis label to ``(line label, seconds, values)``."""
    start = rows[0]["t_s"] if rows else 0.0
    out: dict[str, list[tuple[str, list, list]]] = {}
    for axis, curves in (*RESOURCE_CURVES.items(), *_gpu_curves(rows).items()):
        for curve in curves:
            points = column(rows, *curve.path)
            if len(points) >= 2:
                times = [t - start for t, _ in points]
                values = [v * curve.scale for _, v in points]
                out.setdefault(axis, []).append((curve.label, times, values))
    return out


def _gpu_curves(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Curve, ...]]:
    """GPU rows are lists; column() reads mappings, so they are drawn through ``gpu_rows``."""
    count = len(rows[0].get("gpus") or ()) if rows else 0
    return {
        axis: tuple(Curve((f"gpu{i}", key), f"GPU {i}", scale) for i in range(count))
        for axis, key, scale in (
            ("GPU busy %", "utilisation_percent", 1.0),
            ("GPU W", "power_w", 1.0),
            ("GPU GiB", "memory_used_bytes", 2**-30),
        )
    }


def with_gpu_columns(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The samples with each GPU's row under a name of its own (``gpu0``)."""
    return [
        {**row, **{f"gpu{i}": card for i, card in enumerate(row.get("gpus") or ())}} for row in rows
    ]


def plot_resource(panel: Sequence[tuple[str, list, list]], *, axis: str, ax: Axes) -> Axes:
    """One panel of resource lines over the seconds of the run."""
    for index, (label, times, values) in enumerate(panel):
        ax.plot(times, values, color=COLOURS[index % 4], ls=STYLES[index % 4], label=label)
    ax.set(ylabel=axis, xlim=(0, None), ylim=(0, None))
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    ax.legend(frameon=False, loc="upper right", fontsize=8)
    return ax


def plot_load_curve(
    points: Sequence[LoadPoint],
    *,
    latency_knee: LoadPoint | None = None,
    memory_knee: LoadPoint | None = None,
    latency_label: str = "end-to-end latency, median",
    ax: Axes | None = None,
) -> Axes:
    """Throughput (x, tok/s) against latency (y, s), each point named by its load."""
    ax = new_axes(ax)
    known = [p for p in points if p.throughput_tok_s is not None and p.latency_s is not None]
    ax.plot(
        [p.throughput_tok_s for p in known], [p.latency_s for p in known], "o-", color=COLOURS[0]
    )
    for point in known:
        ax.annotate(
            f"{point.load:g}", (point.throughput_tok_s, point.latency_s), xytext=(4, 5),
            textcoords="offset points", fontsize=8,
        )  # fmt: skip
    knees = (("latency knee", latency_knee, "s", 1), ("memory knee", memory_knee, "D", 2))
    for name, knee, marker, colour in knees:
        if knee is not None and knee.throughput_tok_s is not None:
            ax.plot(
                [knee.throughput_tok_s], [knee.latency_s], marker, ms=11, mfc="none", mew=2,
                color=COLOURS[colour], label=f"{name}: load {knee.load:g}",
            )  # fmt: skip
    ax.set(xlabel="output tokens per second", ylabel=f"{latency_label} in s")
    ax.set_xlim(0, None)
    ax.set_ylim(0, None)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, loc="upper left")
    return ax


@dataclass(frozen=True)
class ForestRow:
    """One comparison in the forest plot; all numbers relative (0.2 is 20 %)."""

    label: str
    effect: float | None
    interval: tuple[float, float] | None
    noise_floor: float | None
    verdict: str


def plot_forest(rows: Sequence[ForestRow], *, ax: Axes | None = None) -> Axes:
    """Effect and interval of each comparison against its noise floor; 0 is no difference."""
    ax = new_axes(ax, height_in=1.2 + 0.45 * len(rows))
    for height, row in zip(itertools.count(len(rows) - 1, -1), rows, strict=False):
        if row.noise_floor is not None:
            span = 100 * row.noise_floor
            ax.barh(height, 2 * span, left=-span, height=0.7, color="#d5d8dd", zorder=0)
        if row.effect is None or row.interval is None:
            ax.text(0, height, "no data", ha="center", va="center", fontsize=9)
            continue
        colour = {"better": COLOURS[2], "worse": COLOURS[1]}.get(row.verdict, COLOURS[0])
        low, high = (100 * end for end in row.interval)
        ax.plot([low, high], [height, height], "-", color=colour, lw=2)
        ax.plot([100 * row.effect], [height], "o", color=colour)
    ax.axvline(0, color="black", lw=0.8)
    ax.set_yticks(range(len(rows) - 1, -1, -1), [f"{r.label}: {r.verdict}" for r in rows])
    ax.set(xlabel="difference of B against A in %; grey: noise floor", ylim=(-0.6, len(rows) - 0.4))
    return ax
