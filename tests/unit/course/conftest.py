"""Small courses made of tiny notebooks, so that these tests do not depend on the real ones."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from turbo_lab.core.config import Dials
from turbo_lab.course.hygiene import check_notebook
from turbo_lab.course.lesson import Lesson
from turbo_lab.course.manifest import Manifest, NotebookEntry, load_manifest
from turbo_lab.course.refresh import normalise
from turbo_lab.course.replay import Live

PARAMETERS = (
    'mode: str = "auto"  # where numbers come from\n'
    'effort: str = "quick"  # how much runs\n'
    "size: int = 1  # a number"
)

ROW = """
[[notebook]]
id = "{id}"
file = "{file}"
title = "Lesson {id}"
question = "What is {id}?"
minutes = 1
needs = []
checks = "turbo_lab.course.checks.nb{id}"
package = "turbo_lab/core"
smoke = true
status = "draft"
"""


def small_notebook(*sources: str, parameters: str | None = PARAMETERS) -> nbformat.NotebookNode:
    """A notebook with a parameters cell and these code cells."""
    book = nbformat.v4.new_notebook()
    book.metadata.kernelspec = {
        "name": "python3",
        "language": "python",
        "display_name": "Python 3 (ipykernel)",
    }
    book.cells.append(nbformat.v4.new_markdown_cell("# A lesson"))
    if parameters is not None:
        cell = nbformat.v4.new_code_cell(parameters)
        cell.metadata.tags = ["parameters"]
        book.cells.append(cell)
    book.cells.extend(nbformat.v4.new_code_cell(source) for source in sources)
    return book


@pytest.fixture
def make_course(tmp_path: Path) -> Callable[..., Manifest]:
    """Write notebooks ``00_lesson.ipynb``, ``01_...`` and the course.toml that lists them."""

    def make(*books: nbformat.NotebookNode) -> Manifest:
        folder = tmp_path / "notebooks"
        folder.mkdir(exist_ok=True)
        rows = []
        for number, book in enumerate(books):
            name = f"{number:02d}_lesson.ipynb"
            nbformat.write(book, folder / name)
            rows.append(ROW.format(id=f"{number:02d}", file=name))
        (folder / "course.toml").write_text("".join(rows), encoding="utf-8")
        return load_manifest(folder)

    return make


@pytest.fixture
def notebook_of() -> Callable[..., nbformat.NotebookNode]:
    """The builder above, as a fixture (tests are not importable from each other)."""
    return small_notebook


ENTRY = NotebookEntry(
    id="07", file="07_lesson.ipynb", title="Lesson", question="What is measured?", minutes=3,
    needs=(), checks="x", package="y", smoke=False, status="draft",
)  # fmt: skip
PNG = base64.b64encode(b"picture").decode()
ABSTRACT = "中文摘要：本课先预测一个数字，再在自己的机器上测量它，最后比较两者并说明方法何时失效。"
CLAIMS = """- id: a-claim
  statement: A statement that is long enough for the schema.
  number: null
  unit: null
  conditions: none
  source: a book
  url: null
  confidence: read
"""


def code(source: str, *outputs: Any, tags: tuple[str, ...] = ()) -> Any:
    cell = new_code_cell(source, outputs=list(outputs))
    if tags:
        cell.metadata.tags = list(tags)
    return cell


def text(value: str) -> Any:
    return new_output("stream", name="stdout", text=value)


def checked(source: str, value: str) -> Any:
    return code(source, text(value), tags=("nbval-check-output",))


def good() -> Any:
    """A notebook that keeps every rule."""
    book = nbformat.v4.new_notebook()
    overview = "word " * 25
    picture = new_output("display_data", data={"image/png": PNG, "text/plain": "<Figure>"})
    exercises = [
        part
        for k in range(1, 5)
        for part in (
            code(f"answer_{k} = ...", tags=("exercise",)),
            code(f'check("07.{k}", answer_{k})', text("not attempted\n"), tags=("check",)),
        )
    ]
    book.cells = [
        new_markdown_cell("# 07 · What is measured?"),
        new_markdown_cell(f"## Overview\n{overview}\n\n{ABSTRACT}"),
        new_markdown_cell("## Before you start\n3 minutes on 2 cores."),
        new_markdown_cell("## Setup"),
        code(
            'mode: str = "auto"  # where numbers come from\neffort: str = "quick"  # how much',
            tags=("parameters",),
        ),
        new_markdown_cell("## Predict"),
        checked("lab.predict('x', 1)", "predicted x: 1\n"),
        new_markdown_cell("## Measure"),
        checked("lab.measure('x', f)", "measured x: 2\n"),
        new_markdown_cell("## Compare"),
        checked("lab.compare()", "x not met\n"),
        code("draw()", picture),
        new_markdown_cell("**Figure 1.** A falling line would refute it."),
        new_markdown_cell("## Where it loses\nSometimes."),
        new_markdown_cell("## Exercises"),
        *exercises,
        new_markdown_cell("## Takeaways\n- one\n- two\n- three"),
        new_markdown_cell("## References"),
        code("references('a-claim')", text("a claim\n")),
    ]
    return book


def finish(book: Any) -> Any:
    """Counts, ids and stamp, as refresh leaves them."""
    number = 0
    for cell in book.cells:
        if cell.cell_type == "code" and cell.source.strip():
            number += 1
            cell.execution_count = number
    normalise(book)
    return book


@pytest.fixture
def findings(tmp_path: Path):
    """Findings about the good notebook, changed ``before`` or ``after`` its last run."""
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "test.yaml").write_text(CLAIMS, encoding="utf-8")

    def check(before=None, after=None, *, entry=ENTRY, records=()) -> list:
        book = good()
        if before:
            before(book)
        finish(book)
        if after:
            after(book)
        path = tmp_path / ENTRY.file
        path.write_text(nbformat.writes(book), encoding="utf-8")
        return check_notebook(path, entry=entry, records=records, claims=tmp_path / "claims")

    return check


@pytest.fixture
def lesson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lesson:
    """A live lesson whose record goes to a folder of its own."""
    for name in ("TURBO_LAB_MODE", "TURBO_LAB_EFFORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TURBO_LAB_RUN_DIR", str(tmp_path / "run"))
    return Lesson("03", dials=Dials("cpu", "quick", "a test"), source=Live())
