"""``turbo-lab papers``: find, show, audit and begin paper records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from turbo_lab.papers.schema import PaperRecord

AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Folder = Annotated[
    Path | None, typer.Option(help="Folder of records (default: data/papers).", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the group to the application."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Find, show, audit and begin paper records.\n\n"
        "Examples:  turbo-lab papers list --layer runtime   |   turbo-lab papers audit mooncake",
    )
    group.command("list")(list_papers)
    group.command("search")(search)
    group.command("show")(show)
    group.command("new")(new)
    group.command("audit")(audit)
    app.add_typer(group, name="papers")


def list_papers(
    resource: Annotated[
        str | None, typer.Option(help="compute, memory, scheduling or network.")
    ] = None,
    stage: Annotated[str | None, typer.Option(help="prefill, decode or cross_stage.")] = None,
    deployment: Annotated[
        str | None, typer.Option(help="single_node, distributed or both.")
    ] = None,
    coupling: Annotated[
        str | None, typer.Option(help="Hardware coupling: low, medium or high.")
    ] = None,
    layer: Annotated[
        str | None, typer.Option(help="compute, model_parameter, runtime or system_and_network.")
    ] = None,
    usable: Annotated[
        str | None,
        typer.Option(help="usable_now, not_now, testable_small or needs_purchase."),
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """List records, also by the four axes, the layer and what transfers.

    Examples:\n
      turbo-lab papers list\n
      turbo-lab papers list --resource network --stage decode\n
      turbo-lab papers list --usable testable_small --json
    """
    from turbo_lab.papers import store

    chosen = {"resource": resource, "stage": stage, "deployment": deployment,
              "coupling": coupling, "layer": layer, "usable": usable}  # fmt: skip
    _check_axes(chosen)
    _print_rows(store.select(store.list_records(folder=folder), **chosen), as_json)


def search(
    words: Annotated[list[str], typer.Argument(help="All of them must stand in a record.")],
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Search all fields of all records. Exit code 1 when nothing fits.

    Examples:\n
      turbo-lab papers search prefix cache\n
      turbo-lab papers search RDMA --json
    """
    from turbo_lab.papers import store

    hits = store.search(" ".join(words), folder=folder)
    _print_rows(hits, as_json)
    raise typer.Exit(0 if hits else 1)


def show(
    paper: Annotated[str, typer.Argument(help="Id of a record, or a file.")],
    lang: Annotated[str, typer.Option(help="Names of the fields: en, zh or both.")] = "en",
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Show one record in the order of the sources' template.

    Examples:\n
      turbo-lab papers show turbo-sigcomm-2026\n
      turbo-lab papers show orca --lang zh
    """
    from turbo_lab.core.errors import UsageError
    from turbo_lab.papers.template import shown

    if lang not in ("en", "zh", "both"):
        raise UsageError(f"--lang {lang}; allowed: en, zh, both")
    one = _record(paper, folder)
    if as_json:
        statuses = {name: s for s, names in one.by_status().items() for name in names}
        data = {**one.model_dump(mode="json"), "statuses": statuses}
        typer.echo(json.dumps(data, indent=1, ensure_ascii=False))
        return
    for label, text in shown(one, lang=lang):
        typer.echo(f"{label}: {text}")


def new(
    paper: Annotated[str, typer.Argument(help="Id: small letters, digits and hyphens.")],
    title: Annotated[str, typer.Option(help="Title of the paper.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write to this file instead.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print an empty record, each field with its question in English and Chinese.

    Examples:\n
      turbo-lab papers new my-paper --title "A paper" --out my-paper.yaml\n
      turbo-lab papers audit my-paper.yaml
    """
    import re

    from turbo_lab.core.errors import UsageError
    from turbo_lab.papers.template import empty_record

    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", paper):
        raise UsageError(f"id {paper!r}; allowed: small letters, digits and hyphens")
    text = empty_record(paper, title=title.replace('"', "'"))
    if out is not None:
        _write_new(text, out)
    if as_json:
        data = {"id": paper, "yaml": text, "file": str(out) if out is not None else None}
        typer.echo(json.dumps(data, ensure_ascii=False))
    else:
        typer.echo(text if out is None else f"wrote {out}")


def _write_new(text: str, out: Path) -> None:
    """Write the record; neither a file nor a folder is made or replaced by surprise."""
    from turbo_lab.core.errors import UsageError
    from turbo_lab.records.store import write_text_atomically

    if out.exists():
        raise UsageError(f"{out} exists already; choose another --out")
    if not out.parent.is_dir():
        raise UsageError(f"--out {out}: there is no folder {out.parent}; make it first")
    write_text_atomically(text, out)


def audit(
    papers: Annotated[
        list[str] | None, typer.Argument(help="Ids or files; none: all records.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit code 1 when there is any remark.")
    ] = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Name missing metric conditions and typical traps.

    A remark is no verdict about the paper: it says what to know before its
    number is compared with another. Of a file that is no valid record all wrong
    fields are told.

    Examples:\n
      turbo-lab papers audit\n
      turbo-lab papers audit h2o flexgen --json
    """
    from turbo_lab.papers import store
    from turbo_lab.papers.audit import audit as audit_record

    records = [_record(name, folder) for name in papers or []] or store.list_records(folder=folder)
    audits = [audit_record(one) for one in records]
    if as_json:
        rows = [one.to_dict() for one in audits]
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
    else:
        for one in audits:
            typer.echo(f"{one.paper}: {'no remark' if not one.remarks else ''}".rstrip())
            for remark in one.remarks:
                where = f"claim {remark.claim}, " if remark.claim else ""
                typer.echo(f"  {remark.id} ({where}{remark.evidence}): {remark.text}")
    raise typer.Exit(1 if strict and any(one.remarks for one in audits) else 0)


def _record(name: str, folder: Path | None) -> PaperRecord:
    from turbo_lab.papers import store

    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return store.read_record(path)
    return store.record(name, folder=folder)


def _check_axes(chosen: dict[str, str | None]) -> None:
    from typing import get_args

    from turbo_lab.core.errors import UsageError, did_you_mean
    from turbo_lab.papers import schema

    allowed = {
        "resource": get_args(schema.Resource),
        "stage": get_args(schema.Stage),
        "deployment": get_args(schema.Deployment),
        "coupling": get_args(schema.Coupling),
        "layer": get_args(schema.Layer),
        "usable": tuple(schema.Transfer.model_fields),
    }
    for name, value in chosen.items():
        if value is not None and value not in allowed[name]:
            raise UsageError(f"--{name} {value}.{did_you_mean(value, [*allowed[name]])}")


def _print_rows(records: Iterable[PaperRecord], as_json: bool) -> None:
    rows = [
        {"id": r.id, "title": r.title, "venue": r.venue, "year": r.year,
         **r.axes.model_dump(mode="json"), "layers": list(r.layers), "confidence": r.confidence}
        for r in records
    ]  # fmt: skip
    if as_json:
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    for row in rows:
        axes = f"{'+'.join(row['resource'])}, {row['stage']}, {row['deployment']}"
        typer.echo(f"{row['id']}: {row['title']} ({row['venue']} {row['year']}; {axes})")
    typer.echo(f"{len(rows)} records")
