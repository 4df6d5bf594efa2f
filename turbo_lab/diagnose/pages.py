"""A ``/metrics`` page as numbers with labels, and sums and means over it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from turbo_lab.core.errors import RecordError

# Names of one quantity over the versions, the newest first.
NAMES: Mapping[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs"),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs"),
    "swapped": ("vllm:num_requests_swapped",),
    "kv_share": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
    "cpu_kv_share": ("vllm:cpu_cache_usage_perc",),
    "preemptions": ("vllm:num_preemptions_total", "sglang:num_retracted_reqs"),
    "finished": ("vllm:request_success_total",),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "generation_tokens": ("vllm:generation_tokens_total",),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    "ttft": ("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"),
    "tpot": ("vllm:request_time_per_output_token_seconds", "vllm:inter_token_latency_seconds",
             "vllm:time_per_output_token_seconds", "sglang:inter_token_latency_seconds"),
    "e2e": ("vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds"),
    "queue": ("vllm:request_queue_time_seconds",),
    "prefill": ("vllm:request_prefill_time_seconds",),
}  # fmt: skip
PREFIXES = ("vllm:", "sglang:", "http_requests_total")

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Page:
    """Samples of one page: name to label sets and values. ``source`` names where it came from."""

    source: str
    samples: Mapping[str, Mapping[Labels, float]]

    def of(self, quantity: str) -> Mapping[Labels, float]:
        """Samples of a quantity under whichever of its names the page uses; empty for none."""
        for name in NAMES[quantity]:
            if name in self.samples:
                return self.samples[name]
        return {}

    def total(self, quantity: str) -> float | None:
        """Sum over all label sets; None when the page does not have the quantity."""
        rows = self.of(quantity)
        return sum(rows.values()) if rows else None

    def largest(self, quantity: str) -> float | None:
        """Largest value over the label sets; None when absent."""
        return max(self.of(quantity).values(), default=None)

    def mean(self, quantity: str) -> tuple[float, float] | None:
        """(mean, count) of a histogram; None when it is absent or empty."""
        for name in NAMES[quantity]:
            count = sum(self.samples.get(f"{name}_count", {}).values())
            if count:
                return sum(self.samples.get(f"{name}_sum", {}).values()) / count, count
        return None

    def buckets(self, quantity: str) -> list[tuple[float, float]]:
        """(upper edge, requests in this bucket) of a histogram, all labels together."""
        for name in NAMES[quantity]:
            edges: dict[float, float] = {}
            for labels, value in self.samples.get(f"{name}_bucket", {}).items():
                edge = float(dict(labels).get("le", "inf"))
                edges[edge] = edges.get(edge, 0.0) + value
            if edges:
                cumulative, out = 0.0, []
                for edge in sorted(edges):
                    out.append((edge, edges[edge] - cumulative))
                    cumulative = edges[edge]
                return out
        return []

    def by_label(self, quantity: str, *labels: str) -> dict[str, float]:
        """Sums of a quantity per value of the first of ``labels`` that the page uses."""
        rows = self.of(quantity)
        for label in labels:
            out: dict[str, float] = {}
            for key, value in rows.items():
                name = dict(key).get(label)
                if name is not None:
                    out[name] = out.get(name, 0.0) + value
            if out:
                return out
        return {}

    @property
    def is_server(self) -> bool:
        """True when the page has metrics of an inference server."""
        return any(name.startswith(PREFIXES) for name in self.samples)


def parse_page(text: str, *, source: str) -> Page:
    """Read Prometheus text. Lines that are none (a cut end, a proxy's notice) are left out.

    Raises RecordError when no line is a sample.
    """
    samples: dict[str, dict[Labels, float]] = {}
    for name, labels, value in _samples(text.splitlines()):
        samples.setdefault(name, {})[labels] = value
    if not samples:
        raise RecordError(f"{source} holds no Prometheus samples; give URL/metrics or a saved page")
    return Page(source=source, samples=samples)


def looks_like_page(head: str) -> bool:
    """True when the beginning of a file is Prometheus text of a server."""
    whole = head if head.endswith("\n") else head[: head.rfind("\n") + 1] or head
    rows = [row for row in whole.splitlines() if row and not row.startswith("#")][:50]
    if not rows:
        return head.lstrip().startswith(("# HELP", "# TYPE"))
    return sum(1 for _ in _samples(rows)) >= max(1, 0.8 * len(rows))


def _samples(rows: Iterable[str]) -> Iterable[tuple[str, Labels, float]]:
    from prometheus_client.parser import text_string_to_metric_families

    for row in rows:
        if not row or row.startswith("#"):
            continue
        name = row.split("{", 1)[0].split(" ", 1)[0]
        if not name.replace(":", "_").isidentifier():
            continue
        try:
            for family in text_string_to_metric_families(row + "\n"):
                for sample in family.samples:
                    edge = sample.labels.get("le", "+Inf")
                    if not math.isfinite(sample.value) or math.isnan(float(edge)):
                        continue  # an empty summary says NaN
                    name = _own_name(sample.name)
                    yield name, frozenset(sample.labels.items()), float(sample.value)
        except (ValueError, KeyError, IndexError):
            continue


def _own_name(name: str) -> str:
    """The engine's own name of a metric: Ray exports ``vllm:x`` as ``ray_vllm:x`` or ``_x``."""
    return f"vllm:{name[9:]}" if name.startswith(("ray_vllm:", "ray_vllm_")) else name
