"""Serve a trace on simulated replicas, search for the cheapest, count a trace, calibrate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turbo_lab.cli.simulate.calibrate import calibrate
from turbo_lab.cli.simulate.search import search
from turbo_lab.cli.simulate.shared import (
    AcceleratorName,
    AsJson,
    Blocks,
    Budget,
    BusyW,
    CalibrationName,
    Devices,
    Format,
    IdleW,
    Limit,
    Policy,
    PrefixCache,
    Price,
    Router,
    Seed,
    Sequences,
    Slo,
    Sort,
    Speed,
    Trace,
    check_price,
    make_engine,
    parse_slo,
    percent,
    short,
    spending,
    trace_is_small,
)  # fmt: skip
from turbo_lab.cli.simulate.traces import fetch, generate

if TYPE_CHECKING:
    from turbo_lab.sim.result import SimResult


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help=__doc__)
    group.command("run")(run)
    group.command("search")(search)
    group.command("stats")(stats)
    group.command("calibrate")(calibrate)
    group.command("fetch")(fetch)
    group.command("generate")(generate)
    app.add_typer(group, name="simulate")


def run(
    trace: Trace,
    format: Format = "auto",
    calibration: CalibrationName = None,
    replicas: Annotated[int, typer.Option(help="Engines behind the router.")] = 1,
    router: Router = "round-robin",
    policy: Policy = "fcfs",
    slo: Slo = None,
    blocks: Blocks = None,
    max_sequences: Sequences = None,
    max_batched_tokens: Budget = None,
    prefix_cache: PrefixCache = True,
    sort: Sort = False,
    limit: Limit = None,
    speed: Speed = 1.0,
    sketch: Annotated[
        bool | None,
        typer.Option(help="Percentiles within 0.5 % in fixed memory (default: past 1 million)."),
    ] = None,
    seed: Seed = 0,
    accelerator: AcceleratorName = None,
    devices: Devices = 1,
    busy_w: BusyW = None,
    idle_w: IdleW = None,
    price_per_hour: Price = None,
    as_json: AsJson = False,
) -> None:
    """Serve a trace on simulated replicas and report latency, throughput and attainment.

    Every engine follows vLLM's scheduling rules with the step times of a
    calibration. A request that can never fit is refused, as a server would.

    Examples:\n
      turbo-lab simulate run --trace data/traces/chat.csv --replicas 4 --router least-requests\n
      turbo-lab simulate run --trace conv.jsonl --router prefix-aware --slo ttft=1,tpot=0.1 --json\n
      turbo-lab simulate run --trace conv.csv --accelerator h200-sxm5-141gb --idle-w 80
    """
    from turbo_lab.sim.energy import cost_facts, energy_facts, power_model
    from turbo_lab.sim.search import sped_up
    from turbo_lab.sim.simulate import simulate
    from turbo_lab.workload.trace_reader import TraceFile

    engine = make_engine(
        calibration, policy=policy, prefix_cache=prefix_cache, blocks=blocks,
        max_sequences=max_sequences, max_batched_tokens=max_batched_tokens,
    )  # fmt: skip
    power = power_model(name=accelerator, devices=devices, busy_w=busy_w, idle_w=idle_w)
    check_price(price_per_hour)
    rows = TraceFile(trace, format, sort, limit)
    exact = not sketch if sketch is not None else trace_is_small(trace)
    result = simulate(
        sped_up(rows, speed), engine, replicas=replicas, router=router, slo=parse_slo(slo),
        seed=seed, exact=exact,
    )  # fmt: skip
    found = result.to_dict()
    facts = {
        "trace": str(trace), "calibration": engine.calibration.name,
        "calibration_source": engine.calibration.source, "replicas": replicas, "router": router,
        "policy": policy, "seed": seed, **found, "skipped_rows": rows.skipped.rows,
        **energy_facts(found, power), **cost_facts(found, price_per_hour),
    }  # fmt: skip
    typer.echo(json.dumps(facts, indent=1) if as_json else result_text(result, facts))
    raise typer.Exit(0 if result.completed else 1)


def stats(
    file: Annotated[Path, typer.Argument(help="Trace file (CSV or JSON lines, also gzipped).")],
    format: Format = "auto",
    sort: Sort = False,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Count a trace: rate, burstiness, lengths, and the prefix hits of an infinite cache.

    Examples:\n
      turbo-lab simulate stats data/traces/chat.csv\n
      turbo-lab simulate stats conversation_trace.jsonl --json
    """
    from turbo_lab.workload.trace_reader import TraceFile
    from turbo_lab.workload.trace_stats import trace_statistics

    rows = TraceFile(file, format, sort, limit)
    facts = {**trace_statistics(rows), "skipped_rows": rows.skipped.rows}
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {short(v)}" for k, v in value.items())
        typer.echo(f"{name:22} {short(value)}")


def result_text(result: SimResult, facts: dict[str, Any]) -> str:
    """The result in a few lines."""
    lines = [
        f"# {facts['replicas']} x {facts['calibration']} ({facts['calibration_source']}), "
        f"{facts['router']}, {facts['policy']}",
        f"requests {result.requests}, completed {result.completed}, refused {result.refused}, "
        f"preemptions {result.preemptions}, rows skipped {facts['skipped_rows']}",
        f"{'s':10}" + "".join(f"{name:>10}" for name in ("mean", "p50", "p90", "p95", "p99")),
    ]
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        row = facts[name]
        cells = [short(row[k]) for k in ("mean", "p50", "p90", "p95", "p99")]
        lines.append(f"{name[:-2].upper():10}" + "".join(f"{cell:>10}" for cell in cells))
    lines.append(
        f"throughput {short(result.throughput_tok_s)} tok/s, prefix hits "
        f"{percent(result.prefix_hit_rate)} of prompt tokens, busy {percent(facts['busy_share'])}"
    )
    if result.metrics.slo:
        limits = ", ".join(f"{name} <= {value:g} s" for name, value in result.metrics.slo.items())
        lines.append(f"SLO {limits}: {percent(result.slo_attainment)} attained")
    lines += spending(facts)
    lines.append(
        f"simulated {result.duration_s:.6g} s in {result.wall_s:.2f} s: "
        f"{facts['requests_per_s']:,.0f} requests/s (reading the trace took {result.read_s:.2f} s)"
    )
    return "\n".join(lines)
