"""A run and a comparison as text for a terminal and as plain data for ``--json``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbo_lab.core.units import format_seconds
from turbo_lab.experiment.arms import observed
from turbo_lab.experiment.bench import BenchRun
from turbo_lab.experiment.compare import Comparison
from turbo_lab.experiment.gates import BLOCKING
from turbo_lab.metrics.percentiles import certified, percentile
from turbo_lab.records.schema import Measurement, Record

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
    console.print(_latency_table(record))
    for line in rate_lines(record):
        console.print(line, markup=False, highlight=False)
    console.print(_gate_table(record))
    if not is_valid(record):
        console.print("A blocking gate failed: these numbers are not comparable.", style="red")
    where = report or run.folder
    console.print(f"Report: {where}", markup=False, highlight=False, soft_wrap=True)


def _latency_table(record: Record) -> Any:
    from rich.table import Table

    table = Table(title="Latencies (* too few samples to certify at 99 % confidence)")
    table.add_column("metric")
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
        table.add_row(m.name, mean, *cells, str(len(known)))
    return table


def rate_lines(record: Record) -> list[str]:
    """Whole-run rates and attainment of the objectives, one line each."""
    quantities = (observed(record, "summary") or {}).get("quantities") or {}
    lines = [
        f"{name}: {q['value']:.4g} {q['unit']}"
        for name, q in quantities.items()
        if q.get("value") is not None
    ]
    if slo := observed(record, "slo"):
        share = "undefined" if slo["share"] is None else f"{slo['share']:.1%}"
        limits = ", ".join(f"{k} <= {v * 1e3:g} ms" for k, v in slo["limits_s"].items())
        goodput = slo["goodput_req_s"]
        rate = "undefined" if goodput is None else f"{goodput:.4g} req/s"
        lines.append(
            f"objectives {limits}: {slo['attained']} of {slo['counted']} {slo['of']} ({share}), "
            f"goodput {rate}"
        )
    if cost := observed(record, "cost"):
        value = "undefined" if cost["value"] is None else f"{cost['value']:.4g}"
        lines.append(f"cost: {value} {cost['unit']} ({cost['definition']})")
    return lines


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


def comparison_to_json(c: Comparison) -> dict[str, Any]:
    """What ``turbo-lab compare --json`` prints."""
    return {
        "verdict": c.verdict,
        "attributable": c.attributable,
        "changed": list(c.changed),
        "noise_floor": c.noise_floor,
        "effect": c.effect,
        "interval": list(c.interval) if c.interval else None,
        "declared": c.declared,
        "metric": c.metric,
        "unit": c.unit,
        "lower_is_better": c.lower_is_better,
        "a": {"path": c.arms[0], "median": c.values[0], "samples": list(c.samples[0].values),
              "sample_unit": c.samples[0].unit, "starts": c.samples[0].starts},
        "b": {"path": c.arms[1], "median": c.values[1], "samples": list(c.samples[1].values),
              "sample_unit": c.samples[1].unit, "starts": c.samples[1].starts},
        "changes": {k: list(v) for k, v in c.changes.items()},
        "follows": list(c.follows),
        "noise_source": c.noise_source,
        "reasons": list(c.reasons),
        "caveats": list(c.caveats),
        "quality": c.quality,
        "stored_as_noise_floor": c.stored,
    }  # fmt: skip


def show_value(value: float | None, unit: str) -> str:
    """A metric's value with its unit."""
    if value is None:
        return "no data"
    return format_seconds(value) if unit == "s" else f"{value:.4g} {unit}"


def comparison_lines(c: Comparison) -> list[str]:
    """A comparison in sentences. The word "because" appears only where it is earned."""
    a, b = (show_value(v, c.unit) for v in c.values)
    lines = [f"{c.metric}: A {a}, B {b}"]
    if c.effect is not None and c.interval is not None and c.noise_floor is not None:
        lines.append(
            f"difference of the medians {c.effect:+.1%}, 95 % interval {c.interval[0]:+.1%} to "
            f"{c.interval[1]:+.1%}; noise floor {c.noise_floor:.1%} ({c.noise_source})"
        )
    lines.append(f"samples: {_samples_text(c, 0)}; {_samples_text(c, 1)}")
    lines.append(f"verdict: {c.verdict}")
    if c.attributable:
        before, after = c.changes_of(c.declared or "")
        lines.append(f"B is {c.verdict} because {c.declared} changed from {before!r} to {after!r}.")
    elif c.verdict in ("better", "worse"):
        lines.append(f"The cause is not established: {_withheld(c)}.")
    lines += [f"  changed: {k}: {x!r} -> {y!r}" for k, (x, y) in c.changes.items()]
    lines += [f"  reason: {text}" for text in c.reasons]
    lines += [f"  note: {text}" for text in c.caveats]
    if c.quality:
        lines.append(f"  equal replies to equal prompts: {c.quality['equal_share']:.0%}")
    if c.stored:
        lines.append("  stored as a noise floor of this machine")
    return lines


def _samples_text(c: Comparison, side: int) -> str:
    found = c.samples[side]
    return f"{'AB'[side]} {len(found.values)} ({found.unit})"


def _withheld(c: Comparison) -> str:
    if not c.changed:
        return "no recorded setting differs"
    if c.declared is None:
        return f"no variable was declared (--declared), and {', '.join(c.changed)} differ"
    others = [name for name in c.changed if name != c.declared]
    if c.declared not in c.changed:
        return f"{c.declared} does not differ, but {', '.join(others)} do"
    return f"besides {c.declared} also {', '.join(others)} differ"
