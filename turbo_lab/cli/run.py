"""``turbo-lab run``: execute notebooks and write the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turbo_lab.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from turbo_lab.course.progress import Progress
    from turbo_lab.course.rundir import RunFolder, RunSummary


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("run")(run)


def run(
    notebooks: Annotated[
        list[str] | None, typer.Argument(metavar="[NN ...]", help="Numbers; none means all.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="auto, replay, cpu or gpu (default: auto)")
    ] = None,
    effort: Annotated[
        str | None, typer.Option(help="smoke, quick or full (default: quick)")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder (default: runs/<time>)")] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="Set a notebook parameter."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Continue that run where it stopped.")
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Go on after a failed notebook.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON; progress on stderr.")
    ] = False,
) -> None:
    """Execute notebooks live or in replay, with a report under runs/.

    Examples:\n
      turbo-lab run                      the whole course\n
      turbo-lab run 00 01 --mode replay  recorded results, no engine\n
      turbo-lab run 03 -p seed=7         one notebook, one parameter changed\n
      turbo-lab run --resume runs/NAME   go on at the notebook that failed
    """
    from rich.console import Console

    from turbo_lab.course.progress import choose_progress

    console = Console(stderr=as_json)
    shown = choose_progress(console)
    if resume is None:
        summary, folder = _start(
            notebooks=notebooks or [], mode=mode, effort=effort, out=out,
            parameter=parameter or [], keep_going=keep_going, shown=shown,
        )  # fmt: skip
    else:
        _refuse_with_resume(notebooks, mode, effort, out, parameter)
        summary, folder = _continue(resume, keep_going=keep_going, shown=shown)
    _report(summary, folder, console=console, as_json=as_json)


def _report(summary: RunSummary, folder: RunFolder, *, console: Console, as_json: bool) -> None:
    """Print table and JSON, and leave with the run's exit code."""
    from turbo_lab.course.progress import print_summary

    print_summary(summary, console=console, report=str(folder.index))
    if summary.exit_code:
        hint = f"Continue with: turbo-lab run --resume {folder.path}"
        console.print(hint, markup=False, soft_wrap=True)
    if as_json:
        data = {**summary.to_json(), "folder": str(folder.path), "index": str(folder.index)}
        typer.echo(json.dumps(data, indent=1, ensure_ascii=False))
    raise typer.Exit(summary.exit_code)


def _refuse_with_resume(*given: object) -> None:
    if any(given):
        raise UsageError(
            "--resume takes its notebooks, mode, effort and parameters from the run it "
            "continues. Leave the others out, or start a new run without --resume."
        )


def _start(
    *,
    notebooks: list[str],
    mode: str | None,
    effort: str | None,
    out: Path | None,
    parameter: list[str],
    keep_going: bool,
    shown: Progress,
) -> tuple[RunSummary, RunFolder]:
    from turbo_lab.course.manifest import load_manifest
    from turbo_lab.course.parameters import parse_assignments
    from turbo_lab.course.runner import RunOptions, run_course

    options = RunOptions(
        notebooks=tuple(notebooks),
        mode=mode,
        effort=effort,
        parameters=parse_assignments(parameter),
        out=out,
        keep_going=keep_going,
    )
    return run_course(load_manifest(), options=options, progress=shown)


def _continue(path: Path, *, keep_going: bool, shown: Progress) -> tuple[RunSummary, RunFolder]:
    from turbo_lab.course.manifest import load_manifest
    from turbo_lab.course.runner import resume_course

    return resume_course(load_manifest(), path=path, keep_going=keep_going, progress=shown)
