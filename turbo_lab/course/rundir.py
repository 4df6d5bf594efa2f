"""One run's folder, and its ``summary.json``.

The summary is rewritten whole after every notebook, through a temporary file, so a run that dies
leaves a valid summary whose status still says ``running``.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core import host, units
from turbo_lab.core.errors import RecordError, TurboLabError, UsageError
from turbo_lab.records.store import write_text_atomically

SUMMARY_NAME = "summary.json"
SCHEMA = 1
NEEDED_FREE_BYTES = 64 * units.MiB
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)
PARTIAL_SUFFIX = ".partial.ipynb"


@dataclass(frozen=True)
class CellError:
    """The first failing cell. ``cell`` is its execution count, None when none was reached."""

    name: str
    message: str
    cell: int | None = None
    source: str = ""


@dataclass(frozen=True)
class NotebookResult:
    """What became of one notebook.

    ``status``: ``passed``, ``failed``, ``interrupted``, ``running`` or ``not run``.
    Paths are relative to the run's folder. Unknown is None.
    """

    id: str
    title: str
    status: str = "not run"
    seconds: float | None = None
    predictions_met: int | None = None
    predictions_total: int | None = None
    notebook: str | None = None
    html: str | None = None
    source_sha256: str | None = None
    error: CellError | None = None


@dataclass(frozen=True)
class RunSummary:
    """``summary.json``: the whole run. ``status`` as for a notebook, without ``not run``."""

    status: str
    started: str
    mode: str
    mode_reason: str
    effort: str
    parameters: dict[str, Any]
    machine: dict[str, Any]
    notebooks: tuple[NotebookResult, ...]
    seconds: float = 0.0
    schema: int = SCHEMA

    @property
    def exit_code(self) -> int:
        """0 when every notebook passed, 130 when interrupted, else 1."""
        return {"passed": 0, "interrupted": 130}.get(self.status, 1)

    def to_json(self) -> dict[str, Any]:
        """Plain data, as written to ``summary.json``."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run: notebooks/, html/, records/, summary.json, index.html."""

    path: Path

    @property
    def notebooks(self) -> Path:
        """Executed notebooks."""
        return self.path / "notebooks"

    @property
    def html(self) -> Path:
        """One page per executed notebook."""
        return self.path / "html"

    @property
    def records(self) -> Path:
        """Records that the notebooks wrote."""
        return self.path / "records"

    @property
    def index(self) -> Path:
        """The report's first page."""
        return self.path / "index.html"

    @property
    def summary(self) -> Path:
        """The run in numbers."""
        return self.path / SUMMARY_NAME


def default_folder() -> Path:
    """``runs/<local time>`` below the checkout."""
    return host.repository_root() / "runs" / time.strftime("%Y-%m-%d_%H-%M-%S")


def create_run_folder(path: Path) -> RunFolder:
    """Make the folders of a new run.

    Raises UsageError when the folder is in use, TurboLabError when it cannot be written or when
    less than 64 MiB are free there.
    """
    folder = RunFolder(path.expanduser().absolute())
    if folder.path.is_dir() and any(folder.path.iterdir()):
        raise UsageError(
            f"{path} is not empty. Give another --out, or continue that run with --resume {path}"
        )
    with explain_disk_errors(folder.path):
        for part in (folder.notebooks, folder.html, folder.records):
            part.mkdir(parents=True, exist_ok=True)
        check_free_space(folder.path)
    return folder


def check_free_space(path: Path) -> None:
    """Raise TurboLabError when less than 64 MiB are free at ``path``."""
    free = shutil.disk_usage(path).free
    if free < NEEDED_FREE_BYTES:
        raise TurboLabError(
            f"Only {units.format_bytes(free)} are free in {path}, a run needs "
            f"{units.format_bytes(NEEDED_FREE_BYTES)}. Free some space or give another --out."
        )


class explain_disk_errors:  # noqa: N801  (a context manager, used like a function)
    """Turn an OSError of writing below ``path`` into a TurboLabError that says what to do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Translate; other errors pass."""
        if isinstance(error, RecordError):
            error = error.__cause__
        if not isinstance(error, OSError) or error.errno not in _FULL + _FORBIDDEN:
            return
        if error.errno in _FULL:
            raise TurboLabError(
                f"No space left for {self.path}. Free some space, then continue with "
                f"--resume {self.path}"
            ) from error
        raise TurboLabError(
            f"Cannot write to {self.path}: {os.strerror(error.errno)}. "
            "Give a folder you may write to with --out."
        ) from error


def write_summary(folder: RunFolder, summary: RunSummary) -> None:
    """Write ``summary.json`` atomically."""
    text = json.dumps(summary.to_json(), indent=1, ensure_ascii=False)
    write_text_atomically(text + "\n", folder.summary)


def read_summary(folder: RunFolder) -> RunSummary:
    """Read ``summary.json`` back. Raises RecordError when it is missing or damaged."""
    try:
        data = json.loads(folder.summary.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise RecordError(
                f"{folder.summary} has schema {data['schema']}, this version reads {SCHEMA}."
            )
        rows = [
            NotebookResult(**{**row, "error": CellError(**row["error"]) if row["error"] else None})
            for row in data["notebooks"]
        ]
        return RunSummary(**{**data, "notebooks": tuple(rows)})
    except FileNotFoundError as error:
        raise UsageError(
            f"{folder.path} holds no {SUMMARY_NAME}, so there is no run to continue. "
            "Start one with: turbo-lab run"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{folder.summary} is damaged ({error}). Start a new run.") from error
