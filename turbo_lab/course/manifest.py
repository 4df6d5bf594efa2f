"""The list of notebooks: ``notebooks/course.toml``, read into frozen entries."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.errors import ConfigError, UsageError, did_you_mean

MANIFEST_NAME = "course.toml"
NEEDS = ("engine", "gpu", "root")
STATUSES = ("ready", "draft")


@dataclass(frozen=True)
class NotebookEntry:
    """One notebook of the course.

    Attributes:
        id: Two digits, the notebook's number.
        file: File name inside the notebooks folder.
        title: Short title.
        question: The one question the notebook answers.
        minutes: Of the live run on 2 cores at ``effort=quick``, within the whole course.
        needs: What a live run needs, out of ``NEEDS``.
        checks: Module that grades the exercises.
        package: Folder that holds the notebook's code.
        smoke: True when ``make test`` executes it live at ``effort=smoke``.
        status: ``ready`` or ``draft``.
    """

    id: str
    file: str
    title: str
    question: str
    minutes: float
    needs: tuple[str, ...]
    checks: str
    package: str
    smoke: bool
    status: str

    @property
    def stem(self) -> str:
        """File name without its ending."""
        return Path(self.file).stem


@dataclass(frozen=True)
class Manifest:
    """All notebooks in course order, and the folder they lie in."""

    folder: Path
    notebooks: tuple[NotebookEntry, ...]

    def path(self, entry: NotebookEntry) -> Path:
        """Where the notebook's file lies."""
        return self.folder / entry.file

    def select(self, wanted: Sequence[str] = ()) -> tuple[NotebookEntry, ...]:
        """Entries named by number (``0``, ``00``) or file name, in course order; none means all.

        Raises UsageError for a name that is not in the course.
        """
        if not wanted:
            return self.notebooks
        names = {alias: entry for entry in self.notebooks for alias in _aliases(entry)}
        chosen = set()
        for name in wanted:
            key = Path(name).name.removesuffix(".ipynb")
            if key not in names:
                hint = did_you_mean(key, [entry.id for entry in self.notebooks])
                raise UsageError(f"There is no notebook {name!r} in the course.{hint}")
            chosen.add(names[key].id)
        return tuple(entry for entry in self.notebooks if entry.id in chosen)


def _aliases(entry: NotebookEntry) -> tuple[str, ...]:
    return entry.id, str(int(entry.id)), entry.stem


def load_manifest(folder: Path | None = None) -> Manifest:
    """Read and check ``course.toml`` of a notebooks folder (default: this checkout's).

    Raises ConfigError naming the notebook and the field that is wrong.
    """
    folder = folder or host.repository_root() / "notebooks"
    path = folder / MANIFEST_NAME
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path} is missing. Run turbo-lab from a checkout of the repository, installed with "
            "'make course' or 'make lab' (editable), so that the notebooks lie beside the package."
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    entries = tuple(_entry(row, path) for row in data.get("notebook", []))
    _check_order(entries, path)
    return Manifest(folder, entries)


def _entry(row: dict[str, Any], path: Path) -> NotebookEntry:
    name = row.get("id", "without id")
    allowed = [field.name for field in fields(NotebookEntry)]
    for key in row:
        if key not in allowed:
            hint = did_you_mean(key, allowed)
            raise ConfigError(f"{path}, notebook {name}: unknown field {key!r}.{hint}")
    missing = [key for key in allowed if key not in row]
    if missing:
        raise ConfigError(f"{path}, notebook {name}: field missing: {', '.join(missing)}.")
    entry = NotebookEntry(**{**row, "needs": tuple(row["needs"])})
    for problem in _problems(entry):
        raise ConfigError(f"{path}, notebook {name}: {problem}")
    return entry


def _problems(entry: NotebookEntry) -> list[str]:
    found = []
    if not re.fullmatch(r"\d\d", str(entry.id)):
        found.append(f"id is {entry.id!r}, two digits are wanted (as text).")
    elif not re.fullmatch(rf"{entry.id}_[a-z0-9_]+\.ipynb", str(entry.file)):
        found.append(f"file is {entry.file!r}, {entry.id}_lower_case_name.ipynb is wanted.")
    if not str(entry.question).endswith("?"):
        found.append(f"question is {entry.question!r}, it must end with a question mark.")
    if isinstance(entry.minutes, bool) or not isinstance(entry.minutes, int | float):
        found.append(f"minutes is {entry.minutes!r}, a number is wanted.")
    elif entry.minutes <= 0:
        found.append(f"minutes is {entry.minutes!r}, it must be positive.")
    for need in entry.needs:
        if need not in NEEDS:
            found.append(f"needs has {need!r}.{did_you_mean(str(need), list(NEEDS))}")
    if not isinstance(entry.smoke, bool):
        found.append(f"smoke is {entry.smoke!r}, true or false is wanted.")
    if entry.status not in STATUSES:
        hint = did_you_mean(str(entry.status), list(STATUSES))
        found.append(f"status is {entry.status!r}.{hint}")
    return found


def _check_order(entries: tuple[NotebookEntry, ...], path: Path) -> None:
    ids = [entry.id for entry in entries]
    if not ids:
        raise ConfigError(f"{path} lists no notebook.")
    if ids != sorted(set(ids)):
        raise ConfigError(f"{path}: ids must be unique and ascending, found {', '.join(ids)}.")


def map_rows(manifest: Manifest) -> list[str]:
    """The README's map as Markdown table lines, header first."""
    rows = [
        "| # | notebook | question | minutes | needs | package folder | status |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in manifest.notebooks:
        link = f"[{entry.title}](notebooks/{entry.file})"
        needs = ", ".join(entry.needs) or "nothing"
        rows.append(
            f"| {entry.id} | {link} | {entry.question} | {entry.minutes:g} | {needs} "
            f"| `{entry.package}` | {entry.status} |"
        )
    return rows
