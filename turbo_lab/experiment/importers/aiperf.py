"""AIPerf's exports (0.13): ``profile_export_aiperf.json`` or the records, ``profile_export.jsonl``.

Times are in milliseconds unless the unit says otherwise. Its "inter token latency" is one mean per
request, what others call TPOT; it keeps the tool's name and definition.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from turbo_lab.core.errors import RecordError
from turbo_lab.experiment.importers.foreign import Foreign, filled, number

METRICS = {
    "ttft_s": "time_to_first_token",
    "itl_s": "inter_token_latency",
    "icl_s": "inter_chunk_latency",
    "e2e_s": "request_latency",
}
RATES = {
    "output_rate_tok_s": "output_token_throughput",
    "request_rate_req_s": "request_throughput",
    "goodput_req_s": "goodput",
}
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}


def read(raw: Any) -> Foreign:
    """A summary (an object) or records (a list of objects). Raises RecordError for another kind."""
    if isinstance(raw, list):
        return _records(raw)
    if not isinstance(raw, Mapping) or "request_latency" not in raw:
        raise RecordError("no request_latency: not an AIPerf export")
    errors = [e for e in raw.get("error_summary") or [] if isinstance(e, Mapping)]
    count = number((raw.get("request_count") or {}).get("avg"))
    bad = number((raw.get("error_request_count") or {}).get("avg"))
    config = raw.get("input_config") or {}
    return Foreign(
        convention="aiperf",
        version=raw.get("aiperf_version"),
        model=_model(config),
        succeeded=None if count is None else int(count),
        failed=int(bad) if bad is not None else sum(int(e.get("count") or 0) for e in errors),
        settings={"phases": _text(config.get("phases")), "datasets": _text(config.get("datasets"))},
        summary=_summary(raw),
        failures={_error_text(e): int(e.get("count") or 0) for e in errors},
    )


def _records(rows: Sequence[Any]) -> Foreign:
    good = [r["metrics"] for r in rows if isinstance(r, Mapping) and r.get("metrics")
            and not r.get("error")]  # fmt: skip
    bad = [r for r in rows if isinstance(r, Mapping) and r.get("error")]
    if not good and not bad:
        raise RecordError("no row with metrics or an error: not an AIPerf record export")
    return Foreign(
        convention="aiperf",
        version=None,
        model=None,
        succeeded=len(good),
        failed=len(bad),
        settings={},
        samples=filled((ours, _values(good, theirs)) for ours, theirs in METRICS.items()),
        failures=dict(Counter(_error_text({"error_details": r["error"]}) for r in bad)),
    )


def _values(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    out = []
    for row in rows:
        cell = row.get(name)
        if isinstance(cell, Mapping) and (value := number(cell.get("value"))) is not None:
            out.append(value * _scale(cell.get("unit"), name))
    return out


def _scale(unit: Any, name: str) -> float:
    if unit not in UNITS:
        raise RecordError(f"{name} has the unit {unit!r}; known: {', '.join(UNITS)}")
    return UNITS[unit]


def _summary(raw: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    out: dict[str, dict[str, float]] = {}
    for ours, theirs in METRICS.items():
        cell = raw.get(theirs)
        if not isinstance(cell, Mapping):
            continue
        scale = _scale(cell.get("unit"), theirs)
        names = {"mean": "avg", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99",
                 "min": "min", "max": "max"}  # fmt: skip
        out[ours] = {
            k: v * scale for k, their in names.items() if (v := number(cell.get(their))) is not None
        }
    for ours, theirs in RATES.items():
        value = number((raw.get(theirs) or {}).get("avg"))
        if value is not None:
            out[ours] = {"value": value}
    return out


def _model(config: Mapping[str, Any]) -> str | None:
    """Model names of the run, where this version keeps them."""
    items = (config.get("models") or {}).get("items")
    names = [str(i.get("name")) for i in items or [] if isinstance(i, Mapping)]
    return ", ".join(names) or None


def _text(value: Any) -> str | None:
    """Nested settings as one comparable text."""
    return None if value is None else json.dumps(value, sort_keys=True)[:500]


def _error_text(row: Mapping[str, Any]) -> str:
    details = row.get("error_details") or {}
    if isinstance(details, Mapping):
        return f"{details.get('code') or ''} {details.get('message') or ''}".strip()[:160]
    return str(details)[:160]
