"""Every notebook under nbval in replay mode: cells tagged nbval-check-output are compared.

``--nbval-lax`` compares only tagged cells, so a reader with other package versions hears only of
outputs that the prose relies on. ``turbo-lab course hygiene`` demands at least three real ones.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from turbo_lab.core import host
from turbo_lab.course.manifest import load_manifest

COURSE = load_manifest()


def nbval(path: Path) -> subprocess.CompletedProcess:
    options = ["--nbval-lax", "--nbval-current-env", "-p", "no:cacheprovider", "-q"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(path)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=host.repository_root(),
        env={**os.environ, "TURBO_LAB_MODE": "replay", "TURBO_LAB_EFFORT": "quick"},
    )


@pytest.mark.parametrize("entry", COURSE.notebooks, ids=lambda entry: entry.id)
def test_checked_outputs_are_reproduced(entry):
    done = nbval(COURSE.path(entry))
    assert done.returncode == 0, done.stdout[-4000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    cells = nbformat.read(COURSE.path(entry), as_version=4).cells
    assert passed and int(passed[1]) == sum(cell.cell_type == "code" for cell in cells)


@pytest.mark.parametrize("entry", COURSE.notebooks[:1], ids=lambda entry: entry.id)
def test_a_changed_output_is_noticed(entry, tmp_path):
    """The check above can fail: one digit changed in one checked output."""
    book = nbformat.read(COURSE.path(entry), as_version=4)
    for cell in book.cells:
        if "nbval-check-output" in cell.metadata.get("tags", []):
            for output in cell.outputs:
                if output.output_type == "stream" and re.search(r"\d", output.text):
                    digit = re.search(r"\d", output.text)[0]
                    output.text = output.text.replace(digit, str(9 - int(digit)))
                    path = tmp_path / entry.file
                    nbformat.write(book, path)
                    done = nbval(path)
                    assert done.returncode == 1 and "1 failed" in done.stdout
                    return
    pytest.fail(f"{entry.file} has no checked stream output with a number")


def test_an_unchecked_output_is_not_compared(tmp_path):
    book = nbformat.v4.new_notebook()
    cell = nbformat.v4.new_code_cell("print(1)", execution_count=1)
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text="2\n")]
    book.cells = [cell]
    nbformat.write(book, tmp_path / "free.ipynb")
    assert nbval(tmp_path / "free.ipynb").returncode == 0
    cell.metadata.tags = ["nbval-check-output"]
    nbformat.write(book, tmp_path / "tagged.ipynb")
    assert nbval(tmp_path / "tagged.ipynb").returncode == 1
