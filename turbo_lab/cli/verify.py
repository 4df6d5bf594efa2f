"""``turbo-lab verify``: run a record again, inside or outside its interval."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from turbo_lab.experiment.verify import Verification


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("verify")(verify)


def verify(
    record: Annotated[Path, typer.Argument(help="Record file or run folder.")],
    url: Annotated[str | None, typer.Option(help="Server (default: the recorded one).")] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="Check only this metric; repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the new run.")] = None,
    digest_only: Annotated[
        bool, typer.Option("--digest-only", help="Only check that the record is whole.")
    ] = False,
    calibrate: Annotated[bool, typer.Option(help="Measure the client's own error first.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Check a record's digest, run its plan again on a server, and compare.

    Each metric must lie inside the interval that the record's own scatter
    and this machine's noise floor allow. Exit code: 0 reproduced, 1 outside
    or not to be told, 2 wrong use.

    Examples:\n
      turbo-lab verify runs/a\n
      turbo-lab verify runs/a/record.json --url http://127.0.0.1:8000 --json\n
      turbo-lab verify data/records/nb00/quick.json --digest-only
    """
    from rich.console import Console

    from turbo_lab.core.errors import UsageError
    from turbo_lab.experiment.arms import load_arm
    from turbo_lab.experiment.bench import Options
    from turbo_lab.experiment.progress import choose_progress
    from turbo_lab.experiment.verify import verify_record

    loaded = load_arm(record).records
    if digest_only:
        _whole(loaded, as_json)
        return
    if len(loaded) > 1:
        raise UsageError(f"{record} holds {len(loaded)} runs. Give the folder of one of them")
    options = Options(calibrate=calibrate, progress=choose_progress(Console(stderr=True)))
    found = verify_record(loaded[0], base_url=url, metrics=metric or (), out=out, options=options)
    if as_json:
        data = {**asdict(found), "reproduced": found.reproduced, "whole": True}
        typer.echo(json.dumps(data, indent=1, ensure_ascii=False))
    else:
        _show(found)
    raise typer.Exit(0 if found.reproduced else 1)


def _whole(records, as_json: bool) -> None:
    rows = [{"study": r.study, "digest": r.digest, "whole": True} for r in records]
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        typer.echo(f"{row['study']}: whole, {row['digest']}")


def _show(found: Verification) -> None:
    from turbo_lab.report.bench_text import show_value

    for row in found.checks:
        allowed = "unknown"
        if row.interval is not None:
            allowed = " to ".join(show_value(end, row.unit) for end in row.interval)
        typer.echo(
            f"{row.metric}: recorded {show_value(row.recorded, row.unit)} (allowed {allowed}), "
            f"now {show_value(row.again, row.unit)}: {row.outcome}"
        )
    for text in found.reasons:
        typer.echo(f"reason: {text}")
    for text in found.warnings:
        typer.echo(f"note: the new run: {text}")
    if found.changed:
        typer.echo(f"settings that differ from the record: {', '.join(found.changed)}")
    words = {True: "reproduced", False: "not reproduced", None: "cannot tell"}
    typer.echo(f"verdict: {words[found.reproduced]}. New run: {found.folder}")
