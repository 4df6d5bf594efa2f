"""What was handed in: one folder per student, the course's notebooks anywhere below it."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_lab.core import units
from turbo_lab.core.errors import RecordError, UsageError

MAX_NOTEBOOK_BYTES = 20 * units.MiB
MAX_FILES = 5000
_NUMBER = re.compile(r"(\d\d)_.*\.ipynb")
_CHECK = re.compile(r"\b(?:check|require)\(\s*[\"'](\d\d\.\d)[\"']")
LEFT_OUT = (".partial.ipynb", "-checkpoint.ipynb")


@dataclass(frozen=True)
class Submission:
    """One student's folder: number of a notebook to the files that may be it."""

    student: str
    folder: Path
    notebooks: dict[str, tuple[Path, ...]] = field(default_factory=dict)


def find_submissions(root: Path) -> tuple[Submission, ...]:
    """All students' folders below ``root``, by name.

    Raises UsageError when there is no folder, with the layout that is wanted.
    """
    if not root.is_dir():
        raise UsageError(f"{root} is no folder. Give the folder with one folder per student.")
    folders = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not folders:
        raise UsageError(
            f"{root} holds no folder. Wanted: one folder per student, for example "
            f"{root / 'ada' / '03_metrics_and_baseline.ipynb'}"
        )
    return tuple(_submission(folder) for folder in folders)


def _submission(folder: Path) -> Submission:
    found: dict[str, list[Path]] = {}
    if not folder.is_symlink():
        for path in sorted(_files(folder)):
            if (match := _NUMBER.fullmatch(path.name)) and not path.name.endswith(LEFT_OUT):
                found.setdefault(match[1], []).append(path)
    return Submission(folder.name, folder, {k: tuple(v) for k, v in sorted(found.items())})


def _files(folder: Path) -> Iterator[Path]:
    """Files below, without following links, at most ``MAX_FILES``."""
    seen = 0
    for where, folders, names in os.walk(folder, followlinks=False):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            seen += 1
            if seen > MAX_FILES:
                return
            yield Path(where) / name


def read_cells(paths: tuple[Path, ...]) -> list[str]:
    """Sources of the code cells of a handed-in notebook.

    Raises RecordError with what is wrong: two files, a link, too large, no notebook.
    """
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths[:3])
        raise RecordError(f"{len(paths)} files could be this notebook ({names}); one is wanted")
    notebook = _parsed(paths[0])
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise RecordError("it is no notebook of format 4: there is no list of cells")
    return [_source(c) for c in cells if isinstance(c, dict) and c.get("cell_type") == "code"]


def _parsed(path: Path) -> Any:
    try:
        facts = path.lstat()
        if not stat.S_ISREG(facts.st_mode):
            raise RecordError("it is a link or a special file, not a notebook")
        if facts.st_size > MAX_NOTEBOOK_BYTES:
            raise RecordError(
                f"it has {units.format_bytes(facts.st_size)}; at most "
                f"{units.format_bytes(MAX_NOTEBOOK_BYTES)} are read"
            )
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"it cannot be read as a notebook ({type(error).__name__})") from None


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        return "".join(source)
    if not isinstance(source, str):
        raise RecordError("a cell's source is neither text nor a list of lines")
    return source


def exercises_in(source: str) -> tuple[str, ...]:
    """Ids of the exercises that a cell hands in."""
    return tuple(dict.fromkeys(_CHECK.findall(source)))
