"""The results page: every predicted and measured number, read from the records, none typed."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turbo_lab.core import units
from turbo_lab.course.manifest import Manifest, NotebookEntry
from turbo_lab.course.table import ComparisonTable
from turbo_lab.records import store
from turbo_lab.records.environment import describe_machine
from turbo_lab.records.schema import EngineFacts, Record
from turbo_lab.report.figure import drawn
from turbo_lab.report.plots.outcomes import plot_outcomes

_CLAIM = re.compile(r"\[([a-z0-9][a-z0-9-]*)\]</td>")
_WORDS = {"met": "held", "not met": "missed", "unmeasured": "unmeasured"}


@dataclass(frozen=True)
class Outcome:
    """A notebook and the record that its page shows; None while there is no record."""

    entry: NotebookEntry
    record: Record | None
    path: Path | None

    @property
    def held(self) -> str:
        """``12 of 13 predictions held``; empty without a record."""
        if self.record is None:
            return ""
        return f"{self.record.predictions_met} of {self.record.predictions_total} predictions held"


def outcomes(manifest: Manifest, *, records: Path) -> tuple[Outcome, ...]:
    """Each notebook with its ``quick`` record, which its page shows, or the richest there is.

    Raises RecordError for a damaged record.
    """
    return tuple(_outcome(entry, records) for entry in manifest.notebooks)


def _outcome(entry: NotebookEntry, records: Path) -> Outcome:
    if not store.list_records(records / f"nb{entry.id}"):
        return Outcome(entry, None, None)
    path = store.find(f"nb{entry.id}", effort="quick", folder=records)
    return Outcome(entry, store.load(path), path.relative_to(records))


def totals(found: Sequence[Outcome]) -> tuple[int, int]:
    """(predictions held, predictions made) over all records."""
    records = [one.record for one in found if one.record is not None]
    made = sum(record.predictions_total for record in records)
    return sum(record.predictions_met for record in records), made


def results_page(found: Sequence[Outcome]) -> str:
    """The page as MyST Markdown."""
    held, made = totals(found)
    parts = [
        "# Results",
        f"Every number below was predicted first and then measured by a notebook. **{held} of "
        f"{made}** predictions held in the recorded runs; the others are marked *missed* and stay "
        "on the page. The tables are rendered from the records in `data/records/` when this site "
        "is built. They belong to the machine named below each table: your own run gives other "
        "seconds, and should give the same ratios.",
        results_figure(found),
        "## Overview",
        _overview(found),
        *(_section(one) for one in found),
    ]
    return "\n\n".join(parts) + "\n"


def results_figure(found: Sequence[Outcome]) -> str:
    """Measured over predicted, one row of marks per notebook, as HTML."""
    rows = {one.entry.id: one.record.comparison for one in found if one.record is not None}
    held, made = totals(found)
    figure = drawn(
        lambda axes: plot_outcomes(rows, ax=axes[0]),
        caption="Measured over predicted, for every prediction whose ratio is defined. Filled: "
        "inside the range that was allowed before the measurement. Open: outside it. Marks far "
        "from 1 that are filled had an open range (at least, at most).",
        refuted="What would refute a notebook's law: its marks off 1 on other machines too.",
        alt=f"One row of marks per notebook on a logarithmic axis of measured over predicted; "
        f"most lie close to 1. {held} of {made} predictions held.",
        height_in=0.9 + 0.21 * len(rows),
    )
    return re.sub(r"\n\s*\n", "\n", figure)  # a blank line would end the HTML block


def _overview(found: Sequence[Outcome]) -> str:
    rows = "".join(_overview_row(one) for one in found)
    head = "".join(
        f'<th scope="col">{name}</th>' for name in ("notebook", "held", "machine", "recorded")
    )
    head = f"<thead><tr>{head}</tr></thead>"
    return _scrollable(f'<table class="lab-overview">{head}<tbody>{rows}</tbody></table>')


def _scrollable(table: str) -> str:
    """The theme's script lets the keyboard reach boxes of this class when they scroll."""
    return f'<div class="lab-table pst-scrollable-table-container">{table}</div>'


def _overview_row(one: Outcome) -> str:
    name = html.escape(f"{one.entry.id} {one.entry.title}")
    if one.record is None:
        return f'<tr><th scope="row">{name}</th><td colspan="3">no record yet</td></tr>'
    record = one.record
    return (
        f'<tr><th scope="row"><a href="#results-nb{one.entry.id}">{name}</a></th>'
        f"<td>{record.predictions_met} of {record.predictions_total}</td>"
        f"<td>{html.escape(describe_machine(record.environment))}</td>"
        f"<td>{record.created_at[:10]}</td></tr>"
    )


def _section(one: Outcome) -> str:
    entry = one.entry
    head = (
        f"(results-nb{entry.id})=\n## {entry.id} · {entry.question}\n\n"
        f"[{entry.title}](notebooks/{entry.file})"
    )
    if one.record is None:
        return f"{head}\n\nThere is no record yet."
    record = one.record
    return f"{head}: {one.held}.\n\n{comparison_html(record)}\n\n{environment_html(one)}"


def comparison_html(record: Record) -> str:
    """The notebook's own table, with *held* and *missed* as marks and claims as links."""
    when = f"Recorded on {describe_machine(record.environment)}, {record.created_at[:10]}."
    table = ComparisonTable(record.comparison, note=when, gates=record.gates)._repr_html_()
    for verdict, word in _WORDS.items():
        table = table.replace(f"<td>{verdict}</td>", f'<td class="lab-{word}">{word}</td>')
    table = _CLAIM.sub(r'<a href="claims.html#claim-\1">[\1]</a></td>', table)
    return _scrollable(table.replace("predictions met", "predictions held"))


def environment_html(one: Outcome) -> str:
    """What the numbers depend on, folded: machine, versions, servers, variables, the record."""
    record = one.record
    assert record is not None and one.path is not None
    environment = record.environment
    gpus = ", ".join(f"{gpu.name} (driver {gpu.driver})" for gpu in environment.gpus)
    packages = sorted((k, v) for k, v in environment.packages.items() if v)
    facts = [
        ("processor", f"{environment.cpu}, {environment.cores} cores, {environment.architecture}"),
        ("instructions", ", ".join(environment.cpu_flags) or "unknown"),
        ("memory", _memory(environment.memory_bytes)),
        ("GPU", gpus or "none"),
        ("software", f"Python {environment.python}, {environment.system}"),
        ("packages", ", ".join(f"{name} {version}" for name, version in packages)),
        *(("server", _engine(engine)) for engine in record.engines),
        ("variables", ", ".join(f"{k} = {v}" for k, v in record.variables.items()) or "none"),
        ("commit", _commit(environment.git_commit, environment.git_dirty)),
        ("record", f"data/records/{one.path.as_posix()}, {record.digest}"),
    ]
    rows = "".join(
        f'<tr><th scope="row">{name}</th><td>{html.escape(value)}</td></tr>'
        for name, value in facts
    )
    summary = f"<summary>Environment of notebook {one.entry.id}</summary>"
    table = f"<table><tbody>{rows}</tbody></table>"
    return f'<details class="lab-environment">{summary}{table}</details>'


def _memory(count: int | None) -> str:
    return "unknown" if count is None else units.format_bytes(count)


def _commit(commit: str | None, dirty: bool | None) -> str:
    if commit is None:
        return "unknown"
    return f"{commit[:12]}, with changes" if dirty else commit[:12]


def _engine(engine: EngineFacts) -> str:
    command = " ".join(engine.command) if engine.command else "command unknown"
    return f"{engine.name} {engine.version or '(version unknown)'}: {command}"
