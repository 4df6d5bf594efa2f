"""``turbo-lab course``: the care of the notebooks (hygiene, refresh, map)."""

from __future__ import annotations

import json
from typing import Annotated

import typer

Notebooks = Annotated[
    list[str] | None, typer.Argument(metavar="[NN ...]", help="Numbers; none means all.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def register(app: typer.Typer) -> None:
    """Add the group of commands to the application."""
    group = typer.Typer(no_args_is_help=True, help="Care of the notebooks: hygiene, refresh, map.")
    group.command("hygiene")(hygiene)
    group.command("refresh")(refresh)
    group.command("map")(show_map)
    app.add_typer(group, name="course")


def hygiene(notebooks: Notebooks = None, as_json: AsJson = False) -> None:
    """Check the house rules of the notebooks. Exit code 1 when one is broken.

    Examples:\n
      turbo-lab course hygiene\n
      turbo-lab course hygiene 03 --json
    """
    from dataclasses import asdict

    from turbo_lab.course.hygiene import RULES, check_course
    from turbo_lab.course.manifest import load_manifest

    manifest = load_manifest()
    findings = check_course(manifest, wanted=tuple(notebooks or ()))
    if as_json:
        typer.echo(json.dumps([asdict(f) for f in findings], indent=1, ensure_ascii=False))
    else:
        for finding in findings:
            typer.echo(str(finding))
        count = len(manifest.select(tuple(notebooks or ())))
        typer.echo(f"{count} notebooks, {len(RULES)} rules, {len(findings)} findings")
    raise typer.Exit(1 if findings else 0)


def refresh(
    notebooks: Notebooks = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit code 1 when one would change.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Execute in replay mode, normalise, and write the notebooks that changed.

    Examples:\n
      turbo-lab course refresh 00     after editing notebook 00\n
      turbo-lab course refresh --check   in CI
    """
    from dataclasses import asdict

    from turbo_lab.course.manifest import load_manifest
    from turbo_lab.course.refresh import refresh_course, require_success

    results = []
    for result in refresh_course(load_manifest(), wanted=tuple(notebooks or ()), check=check):
        results.append(result)
        if not as_json:
            typer.echo(f"{result.notebook}: {result.status}")
    if as_json:
        typer.echo(json.dumps([asdict(r) for r in results], indent=1, ensure_ascii=False))
    require_success(results, check=check)


def show_map() -> None:
    """Print the README's map of the course as a Markdown table."""
    from turbo_lab.course.manifest import load_manifest, map_rows

    typer.echo("\n".join(map_rows(load_manifest())))
