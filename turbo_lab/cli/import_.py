"""``turbo-lab import``: the result file of another client as a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("import")(import_)


def import_(
    file: Annotated[Path, typer.Argument(help="Result file.")],
    tool: Annotated[str, typer.Option("--from", help="vllm, guidellm or aiperf.")],
    out: Annotated[
        Path | None, typer.Option(help="Record to write (default: FILE.record.json).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Read a result of vllm bench serve, GuideLLM or AIPerf; metrics keep that tool's definitions.

    Two imports of one tool can be compared; unlike metrics are refused.

    Examples:\n
      turbo-lab import result.json --from vllm\n
      turbo-lab import benchmarks.json --from guidellm --out runs/guide.json\n
      turbo-lab compare result.record.json other.record.json --metric ttft
    """
    from turbo_lab.experiment.importers import import_file
    from turbo_lab.records import store
    from turbo_lab.report.bench_text import show_value

    record = import_file(file, tool=tool)
    path = store.write(record, out or file.with_name(f"{file.stem}.record.json"))
    record = store.load(path)
    if as_json:
        data = {
            "record": str(path),
            "digest": record.digest,
            "client": record.variables["client"],
            "metrics": {
                m.name: {"unit": m.unit, "definition": m.definition, "median": m.value,
                         "count": len(m.samples), "reason": m.reason}
                for m in record.measurements
            },
            "gates": [g.model_dump() for g in record.gates],
        }  # fmt: skip
        typer.echo(json.dumps(data, indent=1, ensure_ascii=False))
        return
    for m in record.measurements:
        typer.echo(f"{m.name}: {show_value(m.value, m.unit)} ({m.definition})")
    for gate in record.gates:
        typer.echo(f"gate {gate.name}: {gate.detail}")
    typer.echo(f"record: {path}")
