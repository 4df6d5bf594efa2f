"""A run as text for a terminal and as plain data for ``--json``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbo_lab.core.units import format_seconds
from turbo_lab.experiment.arms import observed
from turbo_lab.experiment.bench import BenchRun
from turbo_lab.experiment.gates import BLOCKING
from turbo_lab.metrics.percentiles import certified, percentile
from turbo_lab.records.schema import Measurement, Record
from turbo_lab.report.workload_text import print_workload

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = ("ttft_s", "ttft_scheduled_s", "tpot_s", "itl_s", "e2e_s", "dispatch_lag_s")
RATES = ("output_rate_tok_s", "request_rate_req_s", "goodput_req_s")
POINTS = (50, 90, 95, 99)


def run_to_json(run: BenchRun, report: Path | None) -> dict[str, Any]:
    """What ``turbo-lab bench --json`` prints."""
    record = run.record
    summary = observed(record, "summary") or {}
    return {
        "verdict": summary.get("verdict"),
        "valid": is_valid(record),
        "complete": record.complete,
        "interrupted": run.interrupted,
        "attempted": summary.get("attempted"),
        "succeeded": summary.get("succeeded"),
        "failures": summary.get("failures"),
        "metrics": {m.name: _metric(m) for m in record.measurements},
        "quantities": summary.get("quantities"),
        "slo": observed(record, "slo"),
        "cost": observed(record, "cost"),
        "energy": observed(record, "energy"),
        "groups": observed(record, "groups"),
        "attempts": observed(record, "attempts"),
        "gates": [g.model_dump() for g in record.gates],
        "calibration": observed(record, "calibration"),
        "resources": observed(record, "resources"),
        "variables": record.variables,
        "engine": record.engines[0].model_dump(mode="json"),
        "digest": record.digest,
        "folder": str(run.folder),
        "record": str(run.folder / "record.json"),
        "report": str(report) if report else None,
        "error": str(run.problem) if run.problem else None,
    }


def is_valid(record: Record) -> bool:
    """True when no blocking gate failed."""
    return not any(g.passed is False and g.name in BLOCKING for g in record.gates)


def _metric(m: Measurement) -> dict[str, Any]:
    known = [v for v in m.samples if v is not None]
    return {
        "unit": m.unit,
        "definition": m.definition,
        "median": m.value,
        "mean": sum(known) / len(known) if known else None,
        "min": min(known, default=None),
        "max": max(known, default=None),
        **{f"p{p}": percentile(known, p) for p in POINTS},
        "count": len(known),
        "certified": [f"p{p}" for p in POINTS if certified(len(known), p)],
        "reason": m.reason,
    }


def print_run(run: BenchRun, report: Path | None, console: Console) -> None:
    """The tables at the end of a run."""
    record = run.record
    summary = observed(record, "summary") or {}
    console.print(
        f"\n{summary.get('succeeded')} of {summary.get('attempted')} requests succeeded; "
        f"verdict: {summary.get('verdict')}", markup=False, highlight=False,
    )  # fmt: skip
    if summary.get("succeeded"):
        console.print(_latency_table(record))
    for line in rate_lines(record):
        console.print(line, markup=False, highlight=False)
    print_workload(record, console)
    console.print(_gate_table(record))
    if not is_valid(record):
        console.print("A blocking gate failed: these numbers are not comparable.", style="red")
    where = report or run.folder
    console.print(f"Report: {where}", markup=False, highlight=False, soft_wrap=True)


def _latency_table(record: Record) -> Any:
    from rich.table import Table

    table = Table(title="Latencies (* too few samples to certify at 99 % confidence)")
    table.add_column("metric", no_wrap=True)
    for name in ("mean", *(f"p{p}" for p in POINTS), "n"):
        table.add_column(name, justify="right")
    for m in record.measurements:
        known = [v for v in m.samples if v is not None]
        if m.name not in SHOWN or not known:
            continue
        cells = [
            format_seconds(percentile(known, p)) + ("" if certified(len(known), p) else " *")
            for p in POINTS
        ]
        mean = format_seconds(sum(known) / len(known))
        table.add_row(plain(m.name), mean, *cells, str(len(known)))
    return table


def rate_lines(record: Record) -> list[str]:
    """Whole-run rates and attainment of the objectives, one line each."""
    return [f"{name}: {value}" for name, value in rate_rows(record)]


def rate_rows(record: Record) -> list[tuple[str, str]]:
    """Whole-run quantities, objectives and cost as (name, text)."""
    quantities = (observed(record, "summary") or {}).get("quantities") or {}
    rows = [
        (plain(name).replace("_", " "), f"{readable(float(q['value']))} {q['unit']}")
        for name, q in quantities.items()
        if q.get("value") is not None
    ]
    if slo := observed(record, "slo"):
        share = "undefined" if slo["share"] is None else f"{slo['share']:.1%}"
        limits = ", ".join(f"{k} <= {v * 1e3:g} ms" for k, v in slo["limits_s"].items())
        rate = slo["goodput_req_s"]
        goodput = "undefined" if rate is None else f"{readable(float(rate))} req/s"
        met = f"{slo['attained']} of {slo['counted']} {slo['of']} requests ({share})"
        rows += [(f"objectives {limits}", f"met by {met}"), ("goodput", goodput)]
    if cost := observed(record, "cost"):
        value = "undefined" if cost["value"] is None else readable(float(cost["value"]))
        rows.append(("cost", f"{value} {cost['unit']} ({cost['definition']})"))
    return rows


def plain(name: str) -> str:
    """A metric's name without its unit, which stands beside its values."""
    return re.sub(r"(_tok_s|_req_s|_s)$", "", name)


def readable(value: float) -> str:
    """A number with three significant digits or one decimal; thousands are grouped."""
    if abs(value) >= 1000 or value.is_integer():
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"


def readable_time(stamp: str) -> str:
    """``2026-01-02T03:04:05Z`` as ``2026-01-02 03:04 UTC``."""
    match = re.match(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)\S*Z$", stamp)
    return f"{match[1]} {match[2]} UTC" if match else stamp


def gate_word(passed: bool | None, name: str) -> str:
    """``passed``, ``unknown``, ``warning`` or ``FAILED``."""
    if passed is None:
        return "unknown"
    return "passed" if passed else "FAILED" if name in BLOCKING else "warning"


def _gate_table(record: Record) -> Any:
    from rich.table import Table
    from rich.text import Text

    colours = {"passed": "green", "FAILED": "red", "warning": "yellow", "unknown": ""}
    table = Table(title="Validity gates")
    for name in ("gate", "state", "detail"):
        table.add_column(name)
    for gate in record.gates:
        word = gate_word(gate.passed, gate.name)
        table.add_row(gate.name, Text(word, style=colours[word]), Text(gate.detail))
    return table


def show_value(value: float | None, unit: str) -> str:
    """A metric's value with its unit."""
    if value is None:
        return "no data"
    return format_seconds(value) if unit == "s" else f"{readable(float(value))} {unit}"
