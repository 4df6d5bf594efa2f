"""Resources over the time of a run: processor, memory, network, engine queue, KV cache, GPUs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from turbo_lab.client.resources import column
from turbo_lab.core.units import MB, GiB
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.report.plots.request import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLES = ("-", "--", "-.", ":")
Rows = Sequence[Mapping[str, Any]]
Panels = dict[str, list["Line"]]


@dataclass(frozen=True)
class Line:
    """One drawn line: seconds of the run and values; NaN breaks it."""

    label: str
    times_s: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Curve:
    """Where a line is found in the samples. ``rate``: draw its growth per second, not its value.

    Of several ``paths`` (one engine's names each) the first that is there is taken.
    """

    label: str
    paths: tuple[tuple[str, ...], ...]
    scale: float = 1.0
    rate: bool = False


def _engine(label: str, *names: str) -> Curve:
    return Curve(label, tuple(("engine", name) for name in names))


CURVES = {
    "processor\n[cores]": (
        Curve("server", (("processes", "server", "cores"),)),
        Curve("client", (("processes", "client", "cores"),)),
    ),
    "server memory\n[GiB]": (
        Curve("resident", (("processes", "server", "resident_bytes"),), 1 / GiB),
    ),
    "page cache\n[GiB]": (Curve("of the whole machine", (("page_cache_bytes",),), 1 / GiB),),
    "network, all\n[MB/s]": (
        Curve("received", (("net_received_bytes",),), 1 / MB, rate=True),
        Curve("sent", (("net_sent_bytes",),), 1 / MB, rate=True),
    ),
    "requests in\nthe engine": (
        _engine("running", "vllm:num_requests_running", "sglang:num_running_reqs",
                "llamacpp:requests_processing", "tgi_batch_current_size", "mock:requests_running"),
        _engine("waiting", "vllm:num_requests_waiting", "sglang:num_queue_reqs",
                "llamacpp:requests_deferred", "tgi_queue_size"),
    ),
    "KV cache\nin use [%]": (
        Curve("of the pool", (("engine", "vllm:kv_cache_usage_perc"),
                              ("engine", "vllm:gpu_cache_usage_perc"),
                              ("engine", "sglang:token_usage"),
                              ("engine", "llamacpp:kv_cache_usage_ratio")), 100.0),
    ),
}  # fmt: skip
GPU_CURVES = (
    ("GPU busy\n[%]", "utilisation_percent", 1.0), ("GPU power\n[W]", "power_w", 1.0),
    ("GPU memory\n[GiB]", "memory_used_bytes", 1 / GiB),
    ("GPU clock\n[MHz]", "sm_clock_mhz", 1.0),
)  # fmt: skip


def resource_panels(rows: Rows, timelines: Sequence[Timeline] = ()) -> Panels:
    """What can be drawn, axis label to its lines; time 0 is the first sample.

    With ``timelines`` of the same clock the first panel is what the client received.
    """
    rows = [
        {**row, **{f"gpu{i}": card for i, card in enumerate(row.get("gpus") or ())}} for row in rows
    ]
    start_s = rows[0]["t_s"] if rows else 0.0
    panels: Panels = {}
    if tokens := received(rows, timelines):
        panels["received\n[tok/s]"] = [tokens]
    for axis, curves in (*CURVES.items(), *_gpu_curves(rows).items()):
        lines = [line for curve in curves if (line := _line(rows, curve, start_s))]
        if lines:
            panels[axis] = lines
    return panels


def missing_panels(panels: Panels) -> list[str]:
    """What was not measured, in words."""
    return [" ".join(axis.split("\n")).partition(" [")[0] for axis in CURVES if axis not in panels]


def _gpu_curves(rows: Rows) -> dict[str, tuple[Curve, ...]]:
    count = len(rows[0].get("gpus") or ()) if rows else 0
    return {
        axis: tuple(Curve(f"GPU {i}", ((f"gpu{i}", key),), scale) for i in range(count))
        for axis, key, scale in GPU_CURVES
        if count
    }


def _line(rows: Rows, curve: Curve, start_s: float) -> Line | None:
    found = next((p for path in curve.paths if len(p := column(rows, *path)) >= 2), None)
    if found is None:
        return None
    if curve.rate or curve.paths[0][-1] == "cores":
        found = _without_stumps(found)
    if curve.rate:
        found = [(b[0], (b[1] - a[1]) / (b[0] - a[0])) for a, b in itertools.pairwise(found)]
    times, values = [t - start_s for t, _ in found], [v * curve.scale for _, v in found]
    return Line(curve.label, times, values) if len(times) >= 2 else None


def _without_stumps(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Without samples right after another: a rate over a few ms of 10 ms ticks is no rate.

    The sampler takes one last sample when it is stopped, wherever it is in its interval.
    """
    gaps = [b[0] - a[0] for a, b in itertools.pairwise(points)]
    least = 0.5 * median(gaps) if gaps else 0.0
    return [points[0], *(p for p, gap in zip(points[1:], gaps, strict=True) if gap >= least)]


def received(rows: Rows, timelines: Sequence[Timeline]) -> Line | None:
    """Output tokens that arrived between two samples, per second; None where nothing is known."""
    edges = [row["t_s"] for row in rows]
    arrivals = sorted(
        (chunk.t_s, chunk.tokens)
        for timeline in timelines
        for chunk in timeline.visible()
        if chunk.tokens
    )
    if len(edges) < 3 or not arrivals or arrivals[-1][0] < edges[0]:
        return None
    edges = [t for t, _ in _without_stumps([(t, 0.0) for t in edges])]
    line, place = Line("by the client"), 0
    for low, high in itertools.pairwise(edges):
        total = 0
        while place < len(arrivals) and arrivals[place][0] <= high:
            total += arrivals[place][1] if arrivals[place][0] > low else 0
            place += 1
        line.times_s.append(high - edges[0])
        line.values.append(total / (high - low))
    return line


def end_to_end(parts: Sequence[tuple[str, Panels]]) -> tuple[Panels, list[tuple[str, float]]]:
    """Several runs put end to end on one axis, and ``(label, end in s)`` of each."""
    joined: dict[str, dict[str, Line]] = {}
    ends, offset = [], 0.0
    for label, panels in parts:
        last = 0.0
        for axis, lines in panels.items():
            for line in lines:
                known = joined.setdefault(axis, {})
                whole = known.setdefault(line.label, Line(line.label))
                whole.times_s.extend([*(t + offset for t in line.times_s), float("nan")])
                whole.values.extend([*line.values, float("nan")])
                last = max(last, *line.times_s)
        offset += last
        ends.append((label, offset))
    return {axis: list(lines.values()) for axis, lines in joined.items()}, ends


def plot_panels(
    panels: Panels, axes: Sequence[Axes], *, spans: Sequence[tuple[str, float]] = (),
    named: Callable[[str], str] = str, xlabel: str = "seconds of the run",
) -> Sequence[Axes]:  # fmt: skip
    """All panels under each other on one time axis; ``spans`` are runs put end to end."""
    for ax, (axis, lines) in zip(axes, panels.items(), strict=True):
        for index, line in enumerate(lines):
            look = {"color": COLOURS[index % 4], "ls": STYLES[index % 4], "lw": 1.4}
            ax.plot(line.times_s, line.values, label=line.label, **look)
        ax.set_ylabel(axis, fontsize=8)
        ax.set_ylim(0, None)
        if axis.startswith("requests"):
            ax.yaxis.get_major_locator().set_params(integer=True)
        for _, end in spans[:-1]:
            ax.axvline(end, color="#888888", lw=0.7)
        if len(lines) > 1 or lines[0].label not in ("resident", "of the pool"):
            place = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.97), "borderaxespad": 0.0}
            ax.legend(frameon=False, ncols=4, fontsize=8, **place)
    axes[0].figure.align_ylabels(axes)
    axes[-1].set_xlabel(xlabel)
    axes[-1].set_xlim(0, None)
    starts = [0.0, *(end for _, end in spans)]
    for (label, end), start in zip(spans, starts, strict=False):
        axes[0].annotate(named(label), ((start + end) / 2, 1.0), fontsize=8, ha="center",
                         va="bottom", xycoords=("data", "axes fraction"), xytext=(0, 12),
                         textcoords="offset points")  # fmt: skip
    return axes
