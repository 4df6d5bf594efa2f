"""Throughput against latency over rising load, and the two points where it turns.

Latency knee: the last load before latency grows out of proportion to throughput. Memory knee: the
first load at which the KV cache is what limits the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.client import resources
from turbo_lab.experiment.arms import observed, statistic_of
from turbo_lab.experiment.gates import PREEMPTIONS
from turbo_lab.experiment.metric_names import metric_name
from turbo_lab.experiment.sweep import CLIENT_KEYS, SweepResult
from turbo_lab.records.schema import Record

KV_USAGE = (
    "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage",
    "llamacpp:kv_cache_usage_ratio",
)  # fmt: skip
KV_FULL = 0.95
LOAD_KEYS = ("rate_req_s", "concurrency")


@dataclass(frozen=True)
class LoadPoint:
    """One load. ``load`` is requests per second or users; unknown is None."""

    load: float
    throughput_tok_s: float | None
    latency_s: float | None
    kv_usage_max: float | None = None
    preemptions: float | None = None

    @property
    def memory_bound(self) -> bool | None:
        """KV cache at 95 % or more, or preemptions; None when the engine tells neither."""
        if self.kv_usage_max is None and self.preemptions is None:
            return None
        return (self.kv_usage_max or 0.0) >= KV_FULL or (self.preemptions or 0.0) > 0


def load_point(record: Record, *, load_key: str, latency: str = "e2e") -> LoadPoint:
    """The point of one run; ``load_key`` is ``rate_req_s`` or ``concurrency``."""
    name = metric_name(latency)
    found = next((m for m in record.measurements if m.name == name.base), None)
    quantities = (observed(record, "summary") or {}).get("quantities") or {}
    rows: Sequence[dict[str, Any]] = observed(record, "resource_curves") or []
    usage = [v for key in KV_USAGE for _, v in resources.column(rows, "engine", key)]
    load = record.variables.get(load_key)
    return LoadPoint(
        load=float(load) if isinstance(load, int | float) else float("nan"),
        throughput_tok_s=(quantities.get("output_rate_tok_s") or {}).get("value"),
        latency_s=statistic_of(found, name),
        kv_usage_max=max(usage, default=None),
        preemptions=resources.first_growth(rows, PREEMPTIONS),
    )


def latency_knee(points: Sequence[LoadPoint]) -> LoadPoint | None:
    """The point of the latency-over-load curve that lies farthest below its chord.

    Both axes are scaled to 0..1 first (the rule called Kneedle, Satopaa et al. 2011, for a convex
    rising curve). None below three points with numbers or when the curve does not rise.
    """
    known = sorted(
        (p for p in points if p.latency_s is not None and p.load == p.load), key=lambda p: p.load
    )
    if len(known) < 3:
        return None
    first, last = known[0], known[-1]
    assert first.latency_s is not None and last.latency_s is not None
    width, height = last.load - first.load, last.latency_s - first.latency_s
    if width <= 0 or height <= 0.1 * first.latency_s:
        return None

    def below(point: LoadPoint) -> float:
        x = (point.load - first.load) / width
        y = ((point.latency_s or 0.0) - (first.latency_s or 0.0)) / height
        return x - y

    best = max(known, key=below)
    return best if below(best) > 0.05 else None


def power_knee(points: Sequence[LoadPoint]) -> LoadPoint | None:
    """The load with the most throughput per second of latency; None below three points.

    For a closed loop, whose latency rises in a straight line and has no bend to find: below this
    load throughput grows by a larger factor than latency, above it by a smaller one. Source:
    Kleinrock's power, 1979.
    """
    known = [p for p in points if p.throughput_tok_s and p.latency_s]
    if len(known) < 3:
        return None
    return max(known, key=lambda p: (p.throughput_tok_s or 0.0) / (p.latency_s or 1.0))


def memory_knee(points: Sequence[LoadPoint]) -> LoadPoint | None:
    """The smallest load at which the KV cache was full or requests were preempted."""
    full = [p for p in points if p.memory_bound]
    return min(full, key=lambda p: p.load) if full else None


def load_knee(points: Sequence[LoadPoint], *, closed_loop: bool) -> LoadPoint | None:
    """The latency knee by the rule that fits the load: users have no bend, rates have one."""
    return power_knee(points) if closed_loop else latency_knee(points)


def closed_loop(result: SweepResult) -> bool:
    """Whether the load of a sweep is a number of users."""
    return CLIENT_KEYS.get(result.sweep.key) == "concurrency"


def load_points(result: SweepResult) -> list[LoadPoint]:
    """One point per load: the run whose latency is the median of its restarts."""
    key = CLIENT_KEYS.get(result.sweep.key, "")
    if key not in LOAD_KEYS:
        return []
    out = []
    for arm in result.arms.values():
        points = [load_point(r, load_key=key) for r in arm.records]
        known = sorted((p for p in points if p.latency_s is not None), key=lambda p: p.latency_s)
        if known:
            out.append(known[len(known) // 2])
    return sorted(out, key=lambda p: p.load)


def all_points(result: SweepResult) -> list[LoadPoint]:
    """Every run of a sweep over the load, restarts included."""
    key = CLIENT_KEYS.get(result.sweep.key, "")
    runs = [r for arm in result.arms.values() for r in arm.records]
    return [load_point(r, load_key=key) for r in runs] if key in LOAD_KEYS else []
