"""``turbo-lab workshop``: time plans, an offline wheelhouse, student copies, grading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Numbers = Annotated[
    list[str] | None, typer.Option("--notebook", "-n", help="Number; may be given several times.")
]


def register(app: typer.Typer) -> None:
    """Add the group of commands to the application."""
    group = typer.Typer(
        no_args_is_help=True, help="Teach the course: plans, wheelhouse, student copies, grading."
    )
    group.command("plan")(plan)
    group.command("wheelhouse")(wheelhouse)
    group.command("release")(release)
    group.command("grade")(grade)
    app.add_typer(group, name="workshop")


def plan(
    name: Annotated[str | None, typer.Argument(help="half-day or two-day; none: both.")] = None,
    update: Annotated[
        Path | None, typer.Option(help="Make the plans in this file anew (docs/workshop.md).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a time plan made from the measured minutes of the notebooks.

    Examples:\n
      turbo-lab workshop plan half-day\n
      turbo-lab workshop plan --update docs/workshop.md
    """
    from dataclasses import asdict

    from turbo_lab.core.errors import UsageError
    from turbo_lab.course.manifest import load_manifest
    from turbo_lab.records.store import write_text_atomically
    from turbo_lab.workshop import plan as plans

    manifest = load_manifest()
    kinds = [plans.find_kind(name)] if name else plans.KINDS
    if update is not None:
        if not update.is_file():
            raise UsageError(f"there is no file {update}")
        try:
            text = plans.updated(update.read_text(encoding="utf-8"), manifest)
        except UnicodeDecodeError as error:
            raise UsageError(f"{update} is no text file; give docs/workshop.md") from error
        write_text_atomically(text, update)
    if as_json:
        slots = {k.name: [asdict(s) for s in plans.make_plan(manifest, k)] for k in kinds}
        _print_json(slots)
    else:
        typer.echo("\n\n".join("\n".join(plans.render_plan(manifest, k)) for k in kinds))


def wheelhouse(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the wheels go.")],
    kind: Annotated[str, typer.Option(help="replay (light) or cpu (real vLLM, Linux)")] = "replay",
    system: Annotated[
        list[str] | None,
        typer.Option(
            help="linux-x86_64, linux-aarch64, darwin-arm64, darwin-x86_64, windows-amd64"
        ),
    ] = None,
    python: Annotated[list[str] | None, typer.Option(help="As 3.11; several are fine.")] = None,
    as_json: AsJson = False,
) -> None:
    """Collect all wheels of a lock, with checksums and an installer that needs no network.

    Examples:\n
      turbo-lab workshop wheelhouse /media/stick/wheelhouse\n
      turbo-lab workshop wheelhouse DIR --system windows-amd64 --system darwin-arm64 --python 3.12\n
      turbo-lab workshop wheelhouse DIR --kind cpu      with the engine and the model's weights
    """
    from dataclasses import asdict

    from turbo_lab.core import units
    from turbo_lab.workshop.lockfile import find_target
    from turbo_lab.workshop.wheelhouse import build_wheelhouse

    targets = [find_target(s, p) for s in system or [None] for p in python or [None]]
    report = (lambda _: None) if as_json else typer.echo
    done = build_wheelhouse(folder, kind=kind, targets=targets, report=report)
    if as_json:
        _print_json({**asdict(done), "folder": str(done.folder)})
    else:
        size = units.format_bytes(done.size_bytes)
        typer.echo(f"{done.files} files, {size}, {done.fetched} new, {done.seconds:.0f} s")
        typer.echo(f"Install from it: python {folder / 'install_offline.py'} COURSE_FOLDER")


def release(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New or empty folder.")],
    notebooks: Numbers = None,
    nbgrader: Annotated[
        bool, typer.Option("--nbgrader", help="Add nbgrader's metadata and graded cells.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write student copies: the course with checks, without solutions.

    Examples:\n
      turbo-lab workshop release /tmp/course\n
      turbo-lab workshop release DIR -n 00 -n 03 --nbgrader
    """
    from turbo_lab.workshop.release import make_release

    done = make_release(folder, notebooks=notebooks or (), nbgrader=nbgrader)
    if as_json:
        _print_json({"folder": str(done.folder), **done.to_json()})
    else:
        count = sum(len(ids) for ids in done.exercises.values())
        typer.echo(f"{folder}: {len(done.exercises)} notebooks, {count} exercises, no solutions")


def grade(
    submissions: Annotated[Path, typer.Argument(help="One folder per student.")],
    out: Annotated[Path, typer.Option(help="Results; FILE.json and FILE.csv are written.")],
    notebooks: Numbers = None,
    resume: Annotated[bool, typer.Option(help="Go on with --out; keep what is the same.")] = False,
    wall_s: Annotated[float, typer.Option(help="Seconds for one notebook.")] = 300.0,
    step_s: Annotated[float, typer.Option(help="Seconds for one cell or call.")] = 60.0,
    cpu_s: Annotated[float, typer.Option(help="Processor seconds of one process.")] = 120.0,
    memory_mib: Annotated[int, typer.Option(help="Memory of one submission.")] = 4096,
    processes: Annotated[int, typer.Option(help="Processes at one time.")] = 32,
    as_json: AsJson = False,
) -> None:
    """Grade every submission in a process of its own, with limits and without network.

    Examples:\n
      turbo-lab workshop grade submitted --out results.csv\n
      turbo-lab workshop grade submitted --out results.csv -n 03 --resume
    """
    from turbo_lab.core import units
    from turbo_lab.workshop.grade import grade_all
    from turbo_lab.workshop.limits import Limits
    from turbo_lab.workshop.results import check_target

    limits = Limits(
        wall_s=wall_s, step_s=step_s, cpu_s=cpu_s, memory_bytes=memory_mib * units.MiB,
        processes=processes,
    )  # fmt: skip
    target = check_target(out, resume=resume)
    results = grade_all(
        submissions, out=target, notebooks=notebooks or (), limits=limits, resume=resume,
        report=(lambda _: None) if as_json else typer.echo,
    )  # fmt: skip
    if as_json:
        _print_json(results.to_json())
        return
    for student, counts in results.counts().items():
        told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        typer.echo(f"{student}: {told}")
    typer.echo(f"{target} and {target.with_suffix('.csv').name}")


def _print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=1, ensure_ascii=False))
