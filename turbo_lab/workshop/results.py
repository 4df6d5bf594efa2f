"""Results of grading: one JSON file to go on from, one CSV file for the grade book."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import RecordError, UsageError
from turbo_lab.records.store import write_text_atomically

SCHEMA = 1
COLUMNS = ("student", "notebook", "exercise", "status", "reason", "notebook_s")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Row:
    """The verdict on one exercise of one student. ``notebook_s``: seconds for the whole notebook.

    ``status``: passed, failed, not attempted, missing, unreadable, timeout, memory, processes,
    output or crashed.
    """

    student: str
    notebook: str
    exercise: str
    status: str
    reason: str = ""
    notebook_s: float | None = None


@dataclass
class Results:
    """All rows so far, and what they were made with. ``done`` maps "student/NN" to a digest."""

    isolation: list[str]
    limits: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    done: dict[str, str] = field(default_factory=dict)

    def replace(self, student: str, notebook: str, rows: list[Row], digest: str) -> None:
        """Put the rows of one notebook in, instead of older ones."""
        kept = [r for r in self.rows if (r.student, r.notebook) != (student, notebook)]
        self.rows = sorted([*kept, *rows], key=lambda r: (r.student, r.notebook, r.exercise))
        self.done[f"{student}/{notebook}"] = digest

    def counts(self) -> dict[str, dict[str, int]]:
        """Per student: how many exercises have which status."""
        found: dict[str, dict[str, int]] = {}
        for row in self.rows:
            mine = found.setdefault(row.student, {})
            mine[row.status] = mine.get(row.status, 0) + 1
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain data, as written."""
        return {"schema": SCHEMA, **dataclasses.asdict(self)}


def check_target(path: Path, *, resume: bool) -> Path:
    """The JSON file behind ``--out``. Raises UsageError before any work begins."""
    if path.suffix not in (".json", ".csv"):
        raise UsageError(f"--out is {str(path)!r}; allowed: a name that ends with .json or .csv")
    target = path.with_suffix(".json")
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent} for --out")
    if target.exists() and not resume:
        raise UsageError(f"{target} exists. Go on with it: --resume. Or give another --out.")
    return target


def write_results(results: Results, path: Path) -> None:
    """Write the JSON file and, beside it, the CSV file; each whole or not at all."""
    text = json.dumps(results.to_json(), indent=1, ensure_ascii=True)
    write_text_atomically(text + "\n", path)
    write_text_atomically(as_csv(results.rows), path.with_suffix(".csv"))


def read_results(path: Path) -> Results:
    """Read results to go on from. Raises RecordError when the file is damaged."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.pop("schema") != SCHEMA:
            raise ValueError("another schema")
        return Results(**{**data, "rows": [Row(**row) for row in data["rows"]]})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"{path} cannot be continued ({error}). Give another --out, or remove the file."
        ) from error


def as_csv(rows: list[Row]) -> str:
    """Rows as CSV. Text from a submission is never a formula of a spreadsheet."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_safe(getattr(row, name)) for name in COLUMNS])
    return buffer.getvalue()


def _safe(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.2f}"
    text = " ".join("".join(c if c.isprintable() else " " for c in str(value)).split())
    return f"'{text}" if text.startswith(_FORMULA) else text
