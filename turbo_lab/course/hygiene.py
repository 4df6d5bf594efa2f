"""``turbo-lab course hygiene``: the house rules of a notebook, each a small function.

The sections of a notebook are ``##`` headings that begin with these words, in this order:
Overview, Before you start, Setup, Predict, Measure, Compare, Where it loses, Exercises, Takeaways,
References. Other ``##`` headings may lie between them.

nbval runs with ``--nbval-lax``: every cell must run, and the outputs of cells tagged
``nbval-check-output`` are compared. So a reader with other package versions is told only about
outputs that the prose relies on, and the rule ``checked`` demands at least three of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from turbo_lab.core import host
from turbo_lab.core.errors import ConfigError
from turbo_lab.course import hygiene_outputs, hygiene_prose, hygiene_structure
from turbo_lab.course.manifest import Manifest, NotebookEntry
from turbo_lab.course.subject import Problem, Subject
from turbo_lab.records import store
from turbo_lab.records.schema import Record

Rule = Callable[[Subject], Iterator[Problem]]

RULES: tuple[tuple[str, Rule], ...] = (
    ("title", hygiene_structure.title),
    ("sections", hygiene_structure.sections),
    ("abstract", hygiene_structure.abstract),
    ("minutes", hygiene_structure.minutes),
    ("parameters", hygiene_structure.parameters),
    ("tags", hygiene_structure.tags),
    ("code-length", hygiene_structure.code_length),
    ("exercises", hygiene_structure.exercises),
    ("takeaways", hygiene_structure.takeaways),
    ("kernel", hygiene_outputs.kernel),
    ("executed", hygiene_outputs.executed),
    ("replayed", hygiene_outputs.replayed),
    ("errors", hygiene_outputs.errors),
    ("output-kinds", hygiene_outputs.output_kinds),
    ("size", hygiene_outputs.size),
    ("paths", hygiene_outputs.paths),
    ("checked", hygiene_outputs.checked),
    ("metadata", hygiene_outputs.metadata),
    ("figure", hygiene_prose.figure),
    ("caption", hygiene_prose.caption),
    ("measured-number", hygiene_prose.measured_number),
    ("references", hygiene_prose.references),
)


@dataclass(frozen=True)
class Finding:
    """One broken rule. ``cell`` is the cell's index from 0, None for the whole notebook."""

    rule: str
    notebook: str
    cell: int | None
    message: str

    def __str__(self) -> str:
        where = "" if self.cell is None else f", cell {self.cell}"
        return f"{self.notebook}{where}: {self.rule}: {self.message}"


def check_notebook(
    path: Path,
    *,
    entry: NotebookEntry | None = None,
    records: Sequence[Record] = (),
    claims: Path | None = None,
) -> list[Finding]:
    """Apply every rule to one notebook.

    Args:
        path: The notebook's file.
        entry: Its row in course.toml; without it, rules about question and minutes are skipped.
        records: Stored records whose measured numbers must not be typed into prose.
        claims: Folder of the claims (default ``data/claims``).

    Raises:
        ConfigError: The file is missing or is no notebook.
    """
    subject = Subject.read(path, entry=entry, records=tuple(records), claims=claims)
    return [
        Finding(name, path.name, problem.cell, problem.message)
        for name, rule in RULES
        for problem in rule(subject)
    ]


def check_course(manifest: Manifest, *, wanted: Sequence[str] = ()) -> list[Finding]:
    """Apply every rule to the chosen notebooks, and report notebooks missing from course.toml."""
    found = []
    for entry in manifest.select(wanted):
        records = stored_records(entry.id)
        try:
            found += check_notebook(manifest.path(entry), entry=entry, records=records)
        except ConfigError as error:
            found.append(Finding("file", entry.file, None, str(error)))
    if not wanted:
        listed = {entry.file for entry in manifest.notebooks}
        for path in sorted(manifest.folder.glob("*.ipynb")):
            if path.name not in listed:
                found.append(Finding("file", path.name, None, "is not listed in course.toml"))
    return found


def stored_records(notebook_id: str, *, folder: Path | None = None) -> tuple[Record, ...]:
    """The records that replay shows for one notebook. Raises RecordError for a damaged one."""
    folder = folder or host.repository_root() / "data" / "records"
    return tuple(store.load(path) for path in store.list_records(folder / f"nb{notebook_id}"))
