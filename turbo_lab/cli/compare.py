"""``turbo-lab compare``: two runs, one declared variable, one verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from turbo_lab.experiment.compare import Comparison


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("compare")(compare)


def compare(
    a: Annotated[str, typer.Argument(help="Reference: record, run folder, or folder of restarts.")],
    b: Annotated[str, typer.Argument(help="Candidate, likewise.")],
    declared: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The one setting meant to differ (none: A/A)."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="ttft, tpot.p95, throughput ... (default: that of the run)")
    ] = None,
    follows: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Setting that follows from the declared one; repeatable."),
    ] = None,
    store: Annotated[
        bool, typer.Option(help="Keep an A/A comparison as this machine's noise floor.")
    ] = True,
    report: Annotated[
        Path | None, typer.Option(help="Write an HTML page with the forest plot here.")
    ] = None,
    gate: Annotated[
        bool, typer.Option("--gate", help="For CI: exit code 1 unless better or no difference.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Compare two runs by one metric: what differs, by how much, and whether the cause is known.

    Verdicts: better, worse, no difference shown, cannot tell, no data. The
    exit code is 0 whatever the verdict says, 1 when a record is missing or
    damaged, 2 for wrong use. With --gate, for CI, it is 1 also for worse,
    cannot tell and no data: what cannot be told has not passed. Runs are
    made by turbo-lab bench --out DIR; a folder of five starts a side tells
    more than one run a side. Two runs of one configuration (no --declared)
    show how far equal runs differ: the noise floor.

    Examples:\n
      turbo-lab compare runs/a1 runs/a2 --metric ttft\n
      turbo-lab compare runs/a runs/b --declared dtype --metric tpot\n
      turbo-lab compare runs/a runs/b --declared dtype --report runs/a-b.html\n
      turbo-lab compare runs/a runs/b --declared max_num_seqs --json\n
      turbo-lab compare runs/main runs/branch --metric throughput --gate
    """
    from turbo_lab.experiment import compare as comparing
    from turbo_lab.experiment.arms import load_arm
    from turbo_lab.report import comparison_text

    left, right = load_arm(a), load_arm(b)
    wanted = metric or str(left.records[0].variables.get("primary_metric") or "ttft")
    found = comparing.compare(
        left, right, declared=declared, metric=wanted, follows=follows or (), store=store
    )
    if report is not None:
        _write_report(found, report)
    if as_json:
        data = comparison_text.comparison_to_json(found)
        typer.echo(json.dumps(data, indent=1, ensure_ascii=False))
    else:
        for line in comparison_text.comparison_lines(found):
            typer.echo(line)
        if report is not None:
            typer.echo(f"Report: {report}")
    if gate and not found.passes_gate:
        typer.echo(f"gate: failed ({found.verdict})", err=as_json)
        raise typer.Exit(1)
    if gate:
        typer.echo(f"gate: passed ({found.verdict})", err=as_json)


def _write_report(found: Comparison, path: Path) -> None:
    from turbo_lab.records.store import write_text_atomically
    from turbo_lab.report.comparison import render_comparisons

    write_text_atomically(render_comparisons([found]), path)
