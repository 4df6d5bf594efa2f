"""Rules about what is committed with a notebook: outputs, metadata, size, paths."""

from __future__ import annotations

import re
from collections.abc import Iterator

from turbo_lab.core import host
from turbo_lab.course.notebook_file import STAMP, cell_tags, output_text, sources_digest
from turbo_lab.course.subject import Problem, Subject

MAX_BYTES = 300_000
MIN_CHECKED = 3
OUTPUT_KINDS = ("text/plain", "text/markdown", "text/latex", "text/html", "image/png")
ACTIVE_HTML = re.compile(r"<(script|iframe|svg|object|embed)\b", re.IGNORECASE)
ABSOLUTE_PATH = re.compile(
    r"(?<![\w.:/~-])/(?:home|root|Users|tmp|work|opt|mnt|usr|var|private)/[\w.-]+"
    r"|\b[A-Z]:\\{1,2}[\w.-]+"
)
CELL_METADATA = {"tags", "jupyter", "slideshow"}
TRANSIENT = "refresh removes it: turbo-lab course refresh"


def kernel(subject: Subject) -> Iterator[Problem]:
    """Kernelspec python3, as every environment of the project has it."""
    name = subject.notebook.metadata.get("kernelspec", {}).get("name")
    if name != "python3":
        yield Problem(f"the kernelspec is {name!r}, 'python3' is wanted")


def executed(subject: Subject) -> Iterator[Problem]:
    """Every code cell has run, once, from top to bottom."""
    cells = [(i, cell) for i, cell in subject.cells("code") if cell.source.strip()]
    counts = [cell.execution_count for _, cell in cells]
    if None in counts:
        yield Problem("was not executed", cells[counts.index(None)][0])
    elif counts != list(range(1, len(counts) + 1)):
        yield Problem(f"execution counts must be 1 to {len(counts)}, found {counts}")


def replayed(subject: Subject) -> Iterator[Problem]:
    """The outputs come from ``turbo-lab course refresh``, and nothing was edited since."""
    stamp = subject.notebook.metadata.get(STAMP, {})
    if stamp.get("mode") != "replay":
        yield Problem("was not executed in replay mode: run turbo-lab course refresh")
    elif stamp.get("sources_sha256") != sources_digest(subject.notebook):
        yield Problem("was edited after its last run: run turbo-lab course refresh")


def errors(subject: Subject) -> Iterator[Problem]:
    """No error output, except in a cell tagged ``raises-exception``."""
    for index, cell in subject.cells("code"):
        if "raises-exception" in cell_tags(cell):
            continue
        for output in cell.outputs:
            if output.output_type == "error":
                yield Problem(f"error output {output.ename}: {output.evalue}", index)


def output_kinds(subject: Subject) -> Iterator[Problem]:
    """Text, plain tables and PNG only: no SVG, no script, no widget state."""
    if "widgets" in subject.notebook.metadata:
        yield Problem("the notebook holds widget state")
    for index, cell in subject.cells("code"):
        for output in cell.outputs:
            for kind, value in output.get("data", {}).items():
                if kind not in OUTPUT_KINDS:
                    yield Problem(f"output of kind {kind} is not allowed", index)
                elif kind == "text/html" and (active := ACTIVE_HTML.search("".join(value))):
                    yield Problem(f"HTML output with <{active[1]}> is not allowed", index)


def size(subject: Subject) -> Iterator[Problem]:
    """At most 300 KB (300,000 bytes)."""
    count = len(subject.text.encode())
    if count > MAX_BYTES:
        yield Problem(f"the file has {count:,} bytes, {MAX_BYTES:,} at most")


def paths(subject: Subject) -> Iterator[Problem]:
    """No absolute path of the author's machine, in sources or outputs."""
    root = str(host.repository_root())
    for index, cell in enumerate(subject.notebook.cells):
        texts = [cell.source, *(output_text(output) for output in cell.get("outputs", []))]
        texts += ["\n".join(o.get("traceback", [])) for o in cell.get("outputs", [])]
        for text in texts:
            found = ABSOLUTE_PATH.search(text)
            if found or root in text:
                yield Problem(f"absolute path {found[0] if found else root!r}", index)
                break


def checked(subject: Subject) -> Iterator[Problem]:
    """At least three cells whose output nbval really compares.

    Only text counts (nbval does not compare pictures), and an empty output or ``None`` proves
    nothing.
    """
    real = 0
    for index, cell in subject.cells("code"):
        if "nbval-check-output" not in cell_tags(cell):
            continue
        text = "".join(output_text(output) for output in cell.outputs).strip()
        if text in ("", "None"):
            yield Problem("is tagged nbval-check-output but has no text to compare", index)
        else:
            real += 1
    if real < MIN_CHECKED:
        yield Problem(f"{real} outputs are really checked, {MIN_CHECKED} at least are wanted")


def metadata(subject: Subject) -> Iterator[Problem]:
    """No timestamps or papermill metadata, and unique cell ids."""
    if "papermill" in subject.notebook.metadata:
        yield Problem(f"papermill metadata; {TRANSIENT}")
    ids = [cell.get("id") for cell in subject.notebook.cells]
    if len(set(ids)) != len(ids):
        yield Problem("cell ids must be unique")
    for index, cell in enumerate(subject.notebook.cells):
        extra = sorted(set(cell.metadata) - CELL_METADATA)
        if extra:
            yield Problem(f"cell metadata {', '.join(extra)}; {TRANSIENT}", index)
