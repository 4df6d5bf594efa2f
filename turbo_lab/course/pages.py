"""The HTML report of a run: one page per executed notebook and the index."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turbo_lab.core import units
from turbo_lab.course import outcome
from turbo_lab.course.manifest import NotebookEntry
from turbo_lab.course.progress import predictions_text
from turbo_lab.course.rundir import NotebookResult, RunFolder, RunSummary
from turbo_lab.records.environment import describe_machine
from turbo_lab.records.schema import ComparisonRow, Record
from turbo_lab.records.store import write_text_atomically
from turbo_lab.report.html import ComparisonLine, IndexPage, IndexRow, render_index, render_page
from turbo_lab.report.math import render_math


def write_notebook_page(folder: RunFolder, executed: Path, entry: NotebookEntry) -> Path | None:
    """Write the executed notebook as a page; None when the file cannot be read.

    A page that cannot be made must not hide the run's result, so nothing is raised for it.
    """
    import nbformat

    try:
        notebook = nbformat.read(executed, as_version=4)
    except Exception:  # a notebook cut off by a full disk or a kill
        return None
    target = folder.html / f"{entry.stem}.html"
    text = notebook_html(notebook, title=f"{entry.id} {entry.title}")
    return write_text_atomically(text, target)


def notebook_html(notebook: Any, *, title: str) -> str:
    """A notebook as one self-contained page: no network, no script, pictures inside."""
    from nbconvert import HTMLExporter
    from pygments.formatters import HtmlFormatter
    from traitlets.config import Config

    notebook = copy.deepcopy(notebook)
    formulas: list[str] = []

    def put_by(formula: re.Match[str]) -> str:
        formulas.append(formula[0])
        return f"@formula-{len(formulas) - 1}@"

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _INLINE_MATH.sub(put_by, render_math(cell.source))
    config = Config({"HTMLExporter": {"template_name": "basic", "embed_images": True}})
    body, _ = HTMLExporter(config=config).from_notebook_node(notebook)
    light = HtmlFormatter(style="default").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    style = f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{NOTEBOOK_STYLE}"
    back = '<p><a href="../index.html">All notebooks</a></p>\n'
    body = _PUT_BY.sub(lambda found: formulas[int(found[1])], _without_scripts(body))
    return render_page(back + body, title=title, style=style)


# nbconvert closes each tag inside a line by itself, which empties a formula; so they wait aside.
_INLINE_MATH = re.compile(r'<span class="math">.*?</span>', re.DOTALL)
_PUT_BY = re.compile(r"@formula-(\d+)@")

NOTEBOOK_STYLE = """
.highlight, .highlight pre { background: var(--soft); }
.jp-InputPrompt, .jp-OutputPrompt, .prompt, .anchor-link { display: none; }
.jp-OutputArea-output pre, .output_subarea pre { background: none; border: 1px solid var(--line); }
.jp-OutputArea, .output { overflow-x: auto; }
.dataframe, .dataframe th, .dataframe td { border-width: 0 0 1px 0; }
"""


def _without_scripts(body: str) -> str:
    return re.sub(r"<script\b.*?</script>", "", body, flags=re.DOTALL | re.IGNORECASE)


def write_index(folder: RunFolder, summary: RunSummary, entries: Sequence[NotebookEntry]) -> Path:
    """Write ``index.html`` from the summary and the run's records."""
    rows = tuple(
        _row(folder, result, entry)
        for result, entry in zip(summary.notebooks, entries, strict=True)
    )
    page = IndexPage(
        status=summary.status,
        started=summary.started,
        minutes=summary.seconds / 60,
        rows=rows,
        facts=_facts(summary),
    )
    return write_text_atomically(render_index(page), folder.index)


def _row(folder: RunFolder, result: NotebookResult, entry: NotebookEntry) -> IndexRow:
    record = outcome.notebook_record(folder.records, entry.id)
    error = result.error
    where = f"cell [{error.cell}]: " if error and error.cell is not None else ""
    return IndexRow(
        id=result.id,
        title=result.title,
        question=entry.question,
        status=result.status,
        minutes="" if result.seconds is None else f"{result.seconds / 60:.1f}",
        predictions=predictions_text(result) if result.status == "passed" else "",
        link=result.html,
        error=f"{where}{error.name}: {error.message}\n\n{error.source}" if error else "",
        recorded=_recorded(record),
        comparison=tuple(_line(row) for row in record.comparison) if record else (),
    )


def _recorded(record: Record | None) -> str:
    """A replayed number is always labelled, with its machine and date."""
    if record is None or record.mode != "replay":
        return ""
    source = f" ({record.replayed_from})" if record.replayed_from else ""
    return (
        f"Recorded results, not measured in this run: {describe_machine(record.environment)}, "
        f"{record.created_at}{source}"
    )


def _line(row: ComparisonRow) -> ComparisonLine:
    return ComparisonLine(
        name=row.name,
        unit=row.unit,
        predicted=_number(row.predicted),
        measured=_number(row.measured),
        published=_number(row.published),
        verdict=row.verdict,
        reason=row.reason or "",
    )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _facts(summary: RunSummary) -> list[tuple[str, str]]:
    machine = summary.machine
    facts = [
        ("mode", f"{summary.mode}: {summary.mode_reason}"),
        ("effort", summary.effort),
        ("processor", f"{machine['cpu']}, {machine['cores']} cores granted"),
        ("memory", units.format_bytes(machine["memory_bytes"])),
        ("GPU", ", ".join(machine["gpus"]) or "none"),
        ("Python", f"{machine['python']} on {machine['system']}"),
        ("vLLM", machine["vllm"] or "not installed"),
    ]
    return facts + [(f"parameter {k}", str(v)) for k, v in summary.parameters.items()]
