"""Small courses made of tiny notebooks, so that these tests do not depend on the real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from turbo_lab.course.manifest import Manifest, load_manifest

PARAMETERS = (
    'mode: str = "auto"  # where numbers come from\n'
    'effort: str = "quick"  # how much runs\n'
    "size: int = 1  # a number"
)

ENTRY = """
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
            rows.append(ENTRY.format(id=f"{number:02d}", file=name))
        (folder / "course.toml").write_text("".join(rows), encoding="utf-8")
        return load_manifest(folder)

    return make


@pytest.fixture
def notebook_of() -> Callable[..., nbformat.NotebookNode]:
    """The builder above, as a fixture (tests are not importable from each other)."""
    return small_notebook
