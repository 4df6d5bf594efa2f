"""``turbo-lab simulate fetch`` and ``generate``: public traces, and drawn ones like them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from turbo_lab.cli.simulate.shared import AsJson


def fetch(
    name: Annotated[str | None, typer.Argument(help="Name of the trace; none lists all.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where to keep it (default: cache).")] = None,
    trust_first: Annotated[
        bool, typer.Option("--trust-first", help="Accept a file whose digest nobody published.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring a public trace: size, licence and checksum are told first; a broken one goes on.

    Examples:\n
      turbo-lab simulate fetch\n
      turbo-lab simulate fetch azure-2023-conversation --folder traces
    """
    from turbo_lab.workload.trace_fetch import fetch_trace, trace_source, trace_sources

    if name is None:
        found = trace_sources()
        rows = {key: asdict(source) for key, source in found.items()}
        text = "\n".join(f"{key}\n  {source.describe()}" for key, source in found.items())
        typer.echo(json.dumps(rows, indent=1) if as_json else text)
        return
    path = fetch_trace(
        name, folder=folder, trust_first=trust_first,
        report=lambda line: typer.echo(line, err=as_json),
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps({"path": str(path), **asdict(trace_source(name))}, indent=1))


def generate(
    model: Annotated[str, typer.Argument(help="Trace model in data/traces, or a .json file.")],
    out: Annotated[Path, typer.Option(help="JSON-lines file to write.")],
    count: Annotated[int, typer.Option(help="Requests.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal traces.")] = 0,
    rate: Annotated[
        float | None, typer.Option(help="Requests per second (default: the model's).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw requests that are like a public trace: arrivals, lengths, shared prefixes.

    Examples:\n
      turbo-lab simulate generate mooncake-conversation --out drawn.jsonl\n
      turbo-lab simulate generate azure-2023-conversation --count 1000000 --rate 50 --out a.jsonl
    """
    from turbo_lab.workload.trace_generator import SyntheticTrace
    from turbo_lab.workload.trace_model import trace_model
    from turbo_lab.workload.trace_reader import write_requests

    trace = SyntheticTrace(trace_model(model), count, seed, rate)
    written = write_requests(out, trace)
    facts = {"path": str(out), "model": trace.model.name, "requests": written, "seed": seed,
             "rate_per_s": trace.arrivals.rate_per_s}  # fmt: skip
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
    else:
        typer.echo(f"{written:,} requests like {trace.model.source['trace']} in {out}")
