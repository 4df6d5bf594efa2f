"""``turbo-lab study``: a named study, or all of a notebook's measurements at full effort."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated

import typer

NOTEBOOK = re.compile(r"^(?:nb)?(\d{2})$")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("study")(study)


def study(
    name: Annotated[
        str | None, typer.Argument(help="Study, or a notebook's number; none lists the studies.")
    ] = None,
    effort: Annotated[str, typer.Option(help="smoke, quick or full.")] = "full",
    mode: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder; an unfinished study goes on.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Run all restarts and values of a study and write its record (hours are fine).

    Examples:\n
      turbo-lab study                      the studies there are\n
      turbo-lab study aa --effort quick    the noise floor of this machine\n
      turbo-lab study load --effort full --out runs/load\n
      turbo-lab study 03 --effort full     notebook 03 with all its measurements
    """
    if name is None:
        _list(as_json)
        return
    if match := NOTEBOOK.match(name):
        from turbo_lab.cli.run import run

        run(notebooks=[match[1]], mode=mode, effort=effort, out=out, parameter=None,
            resume=None, keep_going=False, as_json=as_json)  # fmt: skip
        return
    _run(name, effort=effort, mode=mode, out=out, as_json=as_json)


def _run(name: str, *, effort: str, mode: str, out: Path | None, as_json: bool) -> None:
    from turbo_lab.cli.sweep import execute, show
    from turbo_lab.core.config import resolve_dials
    from turbo_lab.core.errors import UsageError
    from turbo_lab.experiment.study import load_study, study_record
    from turbo_lab.records import store

    chosen = load_study(name)
    work = chosen.sweep(effort)
    dials = resolve_dials(mode)
    if not dials.live:
        raise UsageError(f"a study measures, and mode is replay here: {dials.reason}")
    folder = out or Path("runs") / f"study-{name}-{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    result = execute(
        work, chosen.launch(dials), folder, calibrate=True, as_json=as_json,
        question=chosen.question,
    )  # fmt: skip
    record = study_record(chosen, result, dials=dials, effort=effort)
    path = store.write(record, folder / f"{name}.json")
    typer.echo(f"record: {path}", err=as_json)
    show(result, as_json=as_json)


def _list(as_json: bool) -> None:
    import json

    from turbo_lab.experiment.study import load_study, study_names

    rows = {n: load_study(n).question for n in study_names()}
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    for n, question in rows.items():
        typer.echo(f"{n:<14}{question}")
