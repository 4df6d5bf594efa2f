"""``turbo-lab simulate search``: the cheapest configuration that meets an SLO."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turbo_lab.cli.simulate.shared import (
    AcceleratorName,
    AsJson,
    BusyW,
    CalibrationName,
    Devices,
    Format,
    IdleW,
    Limit,
    PrefixCache,
    Price,
    Seed,
    Slo,
    Sort,
    Speed,
    Trace,
    check_price,
    make_engine,
    parse_slo,
    percent,
    short,
)  # fmt: skip

if TYPE_CHECKING:
    from turbo_lab.sim.search import Found

Values = Annotated[str | None, typer.Option(metavar="V1,V2,...", help="Values to try.")]


def search(
    trace: Trace,
    slo: Slo = None,
    attain: Annotated[float, typer.Option(help="Share of requests that must meet the SLO.")] = 0.99,
    replicas: Values = "1,2,4,8",
    router: Values = "least-requests",
    policy: Values = None,
    max_sequences: Values = None,
    max_batched_tokens: Values = None,
    blocks: Values = None,
    calibration: CalibrationName = None,
    prefix_cache: PrefixCache = True,
    price_per_hour: Price = None,
    accelerator: AcceleratorName = None,
    devices: Devices = 1,
    busy_w: BusyW = None,
    idle_w: IdleW = None,
    format: Format = "auto",
    sort: Sort = False,
    limit: Limit = None,
    speed: Speed = 1.0,
    seed: Seed = 0,
    backend: Annotated[str, typer.Option(help="local (all cores) or ray (a cluster).")] = "local",
    workers: Annotated[int | None, typer.Option(help="Local processes.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of finished rows; an interrupted search goes on.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate every combination and show the cheapest that meets the objectives.

    The cost of a configuration is the time that its replicas are up. Exit
    code 1 when none meets them.

    Examples:\n
      turbo-lab simulate search --trace conv.csv --slo ttft=1.0,tpot=0.1 --replicas 1,2,3,4\n
      turbo-lab simulate search --trace conv.csv --slo ttft=1 --router random,prefix-aware --out s
    """
    from turbo_lab.sim.energy import cost_facts, energy_facts, power_model
    from turbo_lab.sim.search import search as run_search
    from turbo_lab.workload.trace_reader import TraceFile

    _check(workers)
    check_price(price_per_hour)
    power = power_model(name=accelerator, devices=devices, busy_w=busy_w, idle_w=idle_w)
    asked = {
        "replicas": replicas, "router": router, "policy": policy, "max_sequences": max_sequences,
        "max_batched_tokens": max_batched_tokens, "blocks": blocks,
    }  # fmt: skip
    options = {name: parse_values(name, text) for name, text in asked.items() if text}
    engine = make_engine(calibration, policy="fcfs", prefix_cache=prefix_cache)
    found = run_search(
        TraceFile(trace, format, sort, limit), engine, options=options, slo=parse_slo(slo),
        attain=attain, speed=speed, seed=seed, folder=out, backend=backend, workers=workers,
    )  # fmt: skip
    for row in found.rows:
        row |= {**energy_facts(row, power), **cost_facts(row, price_per_hour)}
    if as_json:
        typer.echo(json.dumps({"attain": attain, "best": found.best, "rows": found.rows}, indent=1))
    else:
        typer.echo(found_text(found, [*options]))
    raise typer.Exit(0 if found.best else 1)


def _check(workers: int | None) -> None:
    from turbo_lab.core.errors import UsageError

    if workers is not None and workers < 1:
        raise UsageError(f"--workers {workers}; allowed: 1 or more")


def parse_values(name: str, text: str) -> list[Any]:
    """``1,2,4`` to values; names stay text. Raises UsageError."""
    from turbo_lab.core.errors import UsageError

    option = f"--{name.replace('_', '-')}"
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError(f"{option} is {text!r}; give at least one value, e.g. V1,V2")
    if name in ("router", "policy"):
        return words
    try:
        return [int(word) for word in words]
    except ValueError:
        raise UsageError(f"{option} takes whole numbers, e.g. 1,2,4; got {text!r}") from None


def found_text(found: Found, names: list[str]) -> str:
    """A table, cheapest first, and the answer."""
    figures = ["replica_s", "slo_attainment", "ttft_p99_s", "tpot_p99_s", "throughput_tok_s"]
    for name in ("energy_per_request_j", "cost_per_request", "cost"):
        if found.rows and found.rows[0].get(name) is not None:
            figures.insert(1, name)
    head = [*names, *figures, "meets"]
    rows = [
        [*(short(row[n]) for n in names), *(short(row[n]) for n in figures),
         "yes" if row["meets"] else "no"]
        for row in found.rows
    ]  # fmt: skip
    widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in [head, *rows]
    ]
    best = found.best
    if best is None:
        lines.append(f"none meets the objectives for {percent(found.attain)} of the requests")
    else:
        chosen = ", ".join(f"{name} {best[name]}" for name in names)
        lines.append(f"cheapest that meets them for {percent(found.attain)} or more: {chosen}")
    return "\n".join(lines)
