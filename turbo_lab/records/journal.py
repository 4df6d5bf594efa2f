"""Rows of a long run, one JSON object per line, so that an interrupted run can resume."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import RecordError
from turbo_lab.records.digest import canonical_json
from turbo_lab.records.redact import redact


def append_row(path: str | Path, row: dict[str, Any]) -> None:
    """Add one row and flush it to disk. One writer at a time.

    A last line that a crash cut off is removed first, so that it cannot swallow this row.
    Raises RecordError when the row is not JSON-able or the disk refuses it.
    """
    line = (canonical_json(redact(row)) + "\n").encode()
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            _cut_torn_line(file)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RecordError(f"{path} could not be extended: {error.strerror or error}.") from error


def _cut_torn_line(file: Any) -> None:
    file.seek(0)
    content = file.read()
    if content and not content.endswith(b"\n"):
        file.truncate(content.rfind(b"\n") + 1)


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    """All whole rows; a missing file is an empty run, a cut-off last line is left out.

    Raises RecordError, naming the line, when a line in the middle is damaged.
    """
    path = Path(path)
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    rows = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise RecordError(f"{path}, line {number}, is damaged: {error}.") from error
        if not isinstance(row, dict):
            raise RecordError(f"{path}, line {number}, is no JSON object.")
        rows.append(row)
    return rows
