"""GuideLLM's JSON report (0.8: ``--output kind=json``): a list of benchmarks, one per rate.

Read in GuideLLM 0.8.1 (schemas/benchmark, schemas/base/request_stats.py). Its TPOT includes TTFT
and its ITL is one mean per request: both keep that definition here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from turbo_lab.core.errors import RecordError
from turbo_lab.experiment.importers.foreign import Foreign, filled, mapping, number

PER_REQUEST = {
    "ttft_s": ("time_to_first_token_ms", 1e-3),
    "tpot_s": ("time_per_output_token_ms", 1e-3),
    "itl_s": ("inter_token_latency_ms", 1e-3),
    "e2e_s": ("request_latency", 1.0),
}
RATES = {
    "output_rate_tok_s": "output_tokens_per_second",
    "request_rate_req_s": "requests_per_second",
}


def read(raw: Any) -> Foreign:
    """One report with one benchmark. Raises RecordError for another kind or several."""
    report = mapping(raw, what="JSON object")
    runs = report.get("benchmarks")
    if not isinstance(runs, list) or not runs:
        raise RecordError("no list 'benchmarks': not a GuideLLM report")
    if len(runs) > 1:
        raise RecordError(
            f"the report holds {len(runs)} benchmarks (a sweep); export one rate per file"
        )
    run = mapping(runs[0], what="benchmark")
    totals = mapping(mapping(run.get("metrics"), what="metrics").get("request_totals") or {},
                     what="request totals")  # fmt: skip
    lost = [r for kind in ("errored", "incomplete") for r in _requests(run, kind)]
    good, bad = number(totals.get("successful")), _sum(totals, "errored", "incomplete")
    return Foreign(
        convention="guidellm",
        version=(report.get("metadata") or {}).get("guidellm_version"),
        model=_model(report),
        succeeded=None if good is None else int(good),
        failed=bad,
        settings={"strategy": _strategy(run)},
        samples=filled((n, _values(run, *rule)) for n, rule in PER_REQUEST.items()),
        summary=_summary(run["metrics"]),
        failures=dict(Counter(str((r.get("info") or {}).get("error"))[:160] for r in lost)),
    )


def _requests(run: Mapping[str, Any], kind: str) -> Sequence[Mapping[str, Any]]:
    found = (run.get("requests") or {}).get(kind)
    return [r for r in found if isinstance(r, Mapping)] if isinstance(found, list) else []


def _values(run: Mapping[str, Any], name: str, scale: float) -> list[float]:
    found = [number(r.get(name)) for r in _requests(run, "successful")]
    return [v * scale for v in found if v is not None]


def _sum(totals: Mapping[str, Any], *names: str) -> int | None:
    found = [number(totals.get(n)) for n in names]
    return None if any(v is None for v in found) else int(sum(v for v in found if v is not None))


def _strategy(run: Mapping[str, Any]) -> str | None:
    strategy = (run.get("config") or {}).get("strategy") or {}
    if not isinstance(strategy, Mapping):
        return None
    parts = [strategy.get("type_"), strategy.get("rate"), strategy.get("max_concurrency")]
    return " ".join(str(p) for p in parts if p is not None) or None


def _model(report: Mapping[str, Any]) -> str | None:
    spec = (report.get("config") or {}).get("spec") or {}
    return (spec.get("backend") or {}).get("model")


def _summary(metrics: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    out: dict[str, dict[str, float]] = {}
    for name, (theirs, scale) in PER_REQUEST.items():
        stats = (metrics.get(theirs) or {}).get("successful") or {}
        flat = {**stats, **(stats.get("percentiles") or {})}
        wanted = ("mean", "median", "p50", "p90", "p95", "p99", "min", "max")
        found = {k: v * scale for k in wanted if (v := number(flat.get(k))) is not None}
        if found:
            out[name] = found
    for name, theirs in RATES.items():
        value = number(((metrics.get(theirs) or {}).get("successful") or {}).get("mean"))
        if value is not None:
            out[name] = {"value": value}
    return out
