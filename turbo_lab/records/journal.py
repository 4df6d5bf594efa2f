"""Rows of a long run, one JSON object per line, so that an interrupted run can resume."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from turbo_lab.core.closing import Closing
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


class Journal(Closing):
    """An open file of rows, for a run that adds many per second.

    Each row is handed to the system whole before ``append`` returns, so killing this process loses
    nothing; ``sync`` (and ``close``) also survive a crash of the machine. A row that does not fit
    on the disk is taken back, so that all before it stay readable. Rows are written as given:
    secrets are the caller's care.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                _cut_torn_line(file)
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise self._refused(error) from error

    def append(self, row: dict[str, Any]) -> None:
        """Add one row. Raises RecordError when the disk refuses it or JSON cannot hold it."""
        try:
            line = (json.dumps(row, separators=(",", ":"), allow_nan=False) + "\n").encode()
        except (TypeError, ValueError) as error:  # A server may have sent NaN.
            raise RecordError(f"{self.path}: a row cannot be stored as JSON: {error}.") from error
        before = self._file.tell()
        try:
            while line:  # A disk that fills up takes a part first, then refuses.
                line = line[self._file.write(line) :]
        except OSError as error:
            os.ftruncate(self._file.fileno(), before)
            raise self._refused(error) from error

    def sync(self) -> None:
        """Wait until everything is on the disk."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._refused(error) from error

    def close(self) -> None:
        """Sync and close. Safe to call twice."""
        if not self._file.closed:
            try:
                self.sync()
            finally:
                self._file.close()

    def _refused(self, error: OSError) -> RecordError:
        return RecordError(f"{self.path} could not be extended: {error.strerror or error}.")


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
