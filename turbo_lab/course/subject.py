"""A notebook as the hygiene rules see it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.course.manifest import NotebookEntry
from turbo_lab.course.notebook_file import read_notebook
from turbo_lab.records.schema import Record

HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Problem:
    """What a rule found. ``cell`` is the index from 0, None for the whole notebook."""

    message: str
    cell: int | None = None


@dataclass(frozen=True)
class Heading:
    """One Markdown heading."""

    level: int
    text: str
    cell: int


@dataclass(frozen=True)
class Subject:
    """One notebook, its row in course.toml, and the stored records of its study."""

    path: Path
    text: str
    notebook: Any
    entry: NotebookEntry | None
    records: tuple[Record, ...]
    claims: Path | None

    @classmethod
    def read(
        cls,
        path: Path,
        *,
        entry: NotebookEntry | None,
        records: tuple[Record, ...],
        claims: Path | None,
    ) -> Subject:
        """Read the file. Raises ConfigError when it is missing or is no notebook."""
        notebook = read_notebook(path)
        text = path.read_text(encoding="utf-8")
        return cls(path, text, notebook, entry, records, claims)

    def cells(self, kind: str) -> Iterator[tuple[int, Any]]:
        """(index, cell) of all cells of a kind: ``code`` or ``markdown``."""
        for index, cell in enumerate(self.notebook.cells):
            if cell.cell_type == kind:
                yield index, cell

    def headings(self) -> list[Heading]:
        """All Markdown headings in order; ``#`` inside a code fence is not one."""
        found = []
        for index, cell in self.cells("markdown"):
            text = re.sub(r"```.*?```", "", cell.source, flags=re.DOTALL)
            found += [Heading(len(m[1]), m[2], index) for m in HEADING.finditer(text)]
        return found

    def section(self, name: str) -> str:
        """Markdown text of the ``##`` section that begins with ``name``; empty without it.

        Text from the heading to the next ``##`` heading, in whichever cells it lies.
        """
        whole = "\n".join(cell.source for _, cell in self.cells("markdown"))
        parts = re.split(r"^##\s+", whole, flags=re.MULTILINE)[1:]
        for part in parts:
            if part.lower().startswith(name.lower()):
                return part.partition("\n")[2]
        return ""
