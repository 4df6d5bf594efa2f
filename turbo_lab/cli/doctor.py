"""``turbo-lab doctor``: name the probable cause from a log, a page, a record or timelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from turbo_lab.diagnose.finding import Diagnosis


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("doctor")(doctor)


def doctor(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH|URL|RECORD",
            help="Logs (also .gz), saved pages, records, runs, request timelines or servers.",
        ),
    ] = None,
    interview: Annotated[
        bool, typer.Option("--interview", help="Ask step by step instead, in the right order.")
    ] = False,
    symptom: Annotated[
        str | None, typer.Option(help="For --interview: error, stuck, slow, wrong or refused.")
    ] = None,
    causes: Annotated[
        bool, typer.Option("--causes", help="Show the table of all known causes.")
    ] = False,
    interval_s: Annotated[
        float, typer.Option(help="Seconds between two readings of a URL; 0 reads once.")
    ] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Name what is probably wrong, with its proof, the next probe and the fix.

    Reads logs of vLLM 0.2 to 0.33, plain or with the prefixes of Ray, Compose
    and Kubernetes. Secrets are removed from the shown lines. A server that does
    not answer is a finding too. Of a run's folder the record and the requests as
    the client saw them are read. Exit code: 0 no finding, 1 findings, 2 wrong use.

    Examples:\n
      turbo-lab doctor server.log\n
      turbo-lab doctor http://127.0.0.1:8000 --json\n
      turbo-lab doctor http://10.0.0.4:8000 http://10.0.0.5:8000\n
      turbo-lab doctor runs/a\n
      turbo-lab doctor runs/a/requests.jsonl\n
      turbo-lab doctor --interview
    """
    if causes:
        _show_causes(as_json)
    elif interview:
        _interview(symptom, as_json)
    else:
        _check_options(symptom)
        _diagnose(targets or [], interval_s=interval_s, as_json=as_json)


def _check_options(symptom: str | None) -> None:
    from turbo_lab.core.errors import UsageError

    if symptom is not None:
        raise UsageError("--symptom belongs to --interview")


def _diagnose(targets: list[str], *, interval_s: float, as_json: bool) -> None:
    """Print the diagnosis and end with its exit code."""
    from turbo_lab.diagnose.doctor import as_json as json_of
    from turbo_lab.diagnose.doctor import diagnose

    diagnosis = diagnose(targets, interval_s=interval_s)
    if as_json:
        typer.echo(json_of(diagnosis))
    else:
        _show(diagnosis)
    raise typer.Exit(1 if diagnosis.findings else 0)


def _show(diagnosis: Diagnosis) -> None:
    many = len(diagnosis.read) > 1
    for number, found in enumerate(diagnosis.findings, 1):
        times = f", seen {found.count} times" if found.count > 1 else ""
        where = f"{found.source}, {found.where}" if many else found.where
        typer.echo(f"{number}. {found.cause} ({found.confidence} confidence{times})")
        typer.echo(f"   {found.means}")
        typer.echo(f"   evidence ({where}): {found.evidence}")
        typer.echo(f"   next probe: {found.next_probe}")
        typer.echo(f"   fix: {found.fix}")
    if diagnosis.findings:
        return
    if not diagnosis.collect:
        typer.echo("no finding")
        return
    known = "nothing that the rules know" if diagnosis.known else "not recognised"
    typer.echo(f"no finding: {known}. Collect, and look again:")
    for text in diagnosis.collect:
        typer.echo(f"- {text}")


def _show_causes(as_json: bool) -> None:
    import json

    from turbo_lab.diagnose.causes import ROWS, list_causes

    table = list_causes()
    if as_json:
        rows = [row.model_dump(exclude={"messages"}) for row in table]
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    family = ""
    for row in table:
        if row.family != family:
            family = row.family
            typer.echo(f"\n{family}")
        typer.echo(f"  {row.cause}: {row.means}")
        typer.echo(f"      probe: {row.next_probe}")
        typer.echo(f"      fix: {row.fix}")
        typer.echo(f"      rows: {'; '.join(ROWS[name] for name in row.rows)}")


def _interview(symptom: str | None, as_json: bool) -> None:
    """Ask on a terminal; with --json print the whole order instead of asking."""
    import json

    from turbo_lab.diagnose.interview import ORDERS, SYMPTOMS, Step, causes_of, order_for, walk

    if as_json:
        chosen = {symptom: order_for(symptom)} if symptom else ORDERS
        orders = {
            name: [
                {"step": s.name, "question": s.question, "look": s.look,
                 "causes": [cause.cause for cause in causes_of(s)]}
                for s in steps
            ]
            for name, steps in chosen.items()
        }  # fmt: skip
        typer.echo(json.dumps(orders, indent=1, ensure_ascii=False))
        return
    if symptom is None:
        for name, text in SYMPTOMS.items():
            typer.echo(f"  {name}: {text}")
        symptom = typer.prompt("What do you see?")
    order_for(symptom)

    def ask(step: Step) -> bool:
        typer.echo(f"\n{step.name}: {step.question}\n  look: {step.look}")
        return typer.confirm("  yes?", default=False)

    done = walk(symptom, says_yes=ask)
    if done.found is None:
        typer.echo("\nNo step explains it. Collect the log, the page and the smallest request.")
        return
    typer.echo(f"\nCauses that fit ({done.found.name}):")
    for cause in done.causes:
        typer.echo(f"- {cause.cause}: {cause.means}\n    probe: {cause.next_probe}")
