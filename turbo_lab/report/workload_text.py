"""What a run with tenants, turns, prefixes or retries adds to the text and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from turbo_lab.core.units import format_seconds
from turbo_lab.experiment.arms import observed
from turbo_lab.experiment.asked import attempts_text
from turbo_lab.metrics.percentiles import certified
from turbo_lab.records.schema import Record

if TYPE_CHECKING:
    from rich.console import Console

TITLES = {"tenant": "By tenant", "turn": "By turn", "prefix use": "By use of the prefix"}
COLUMNS = (
    ("TTFT p50", "ttft_p50_s", 50), ("TTFT p95", "ttft_p95_s", 95), ("TPOT p50", "tpot_p50_s", 50),
    ("E2E p50", "e2e_p50_s", 50), ("E2E p95", "e2e_p95_s", 95),
)  # fmt: skip


def group_rows(record: Record) -> dict[str, list[list[str]]]:
    """Cells of each table by its title: group, requests, failed, latencies, prompt tokens.

    ``*`` marks a percentile that this many samples do not certify.
    """
    found = observed(record, "groups") or {}
    return {
        title: [_cells(row) for row in found[name]]
        for name, title in TITLES.items() if name in found
    }  # fmt: skip


HEADER = ("", "n", "failed", *(title for title, _, _ in COLUMNS), "prompt tokens")
PAGE_ONLY = ("E2E p95",)  # 80 columns of a terminal have no room for it.


def _cells(row: Mapping[str, Any]) -> list[str]:
    good = row["succeeded"]
    cells = [row["group"], str(row["attempted"]), str(row["attempted"] - good)]
    for _, key, point in COLUMNS:
        value = row[key]
        star = "" if certified(good, point) else " *"
        cells.append("-" if value is None else format_seconds(value) + star)
    tokens = row["input_tokens"]
    return [*cells, "-" if tokens is None else f"{tokens:,}"]


def workload_lines(record: Record) -> list[str]:
    """Attempts and fairness in sentences."""
    out = []
    if found := observed(record, "attempts"):
        out.append(f"retries: {attempts_text(found)}")
    if fair := (observed(record, "groups") or {}).get("fairness"):
        out.append(
            f"Jain's index over the tenants (1 is equal): median TTFT {_index(fair['jain_ttft'])}, "
            f"tokens delivered of those asked {_index(fair['jain_served'])}"
        )
    return out


def _index(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"


def print_workload(record: Record, console: Console) -> None:
    """Tables and lines for a terminal; nothing for a plain run."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = [index for index, name in enumerate(HEADER) if name not in PAGE_ONLY]
    for title, rows in group_rows(record).items():
        table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
        for index in shown:
            table.add_column(HEADER[index], justify="right" if index else "left")
        for row in rows:
            table.add_row(*(Text(row[index].replace(" *", "*"), "", no_wrap=True)
                            for index in shown))  # fmt: skip
        console.print(table)
    for line in workload_lines(record):
        console.print(line, markup=False, highlight=False)


def workload_html(record: Record) -> str:
    """Tables and lines for the page, text escaped; nothing for a plain run."""
    from html import escape

    out = []
    for title, rows in group_rows(record).items():
        head = "".join(f"<th{_right(i)}>{escape(name)}</th>" for i, name in enumerate(HEADER))
        body = "\n".join(
            "<tr>"
            + "".join(f"<td{_right(i)}>{escape(c)}</td>" for i, c in enumerate(row))
            + "</tr>"
            for row in rows
        )
        out.append(
            f'<h2>{escape(title)}</h2>\n<div class="scroll"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>\n{body}\n</tbody></table></div>"
        )
    out += [f"<p>{escape(line)}</p>" for line in workload_lines(record)]
    return "\n".join(out)


def _right(index: int) -> str:
    return ' class="n"' if index else ""
