"""The run and course commands on a small course of their own."""

from __future__ import annotations

import json

import nbformat
import pytest
from typer.testing import CliRunner

from turbo_lab.cli.main import build_app
from turbo_lab.course import manifest as manifest_module

COURSE = """[[notebook]]
id = "00"
file = "00_lesson.ipynb"
title = "Lesson"
question = "What is it?"
minutes = 1
needs = []
checks = "x"
package = "y"
smoke = true
status = "draft"
"""


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A checkout whose only notebook holds this code; returns the function that writes it."""

    def write(code: str) -> None:
        folder = tmp_path / "notebooks"
        folder.mkdir(exist_ok=True)
        book = nbformat.v4.new_notebook()
        book.metadata.kernelspec = {"name": "python3", "language": "python", "display_name": "P"}
        parameters = nbformat.v4.new_code_cell(
            'mode: str = "auto"  # m\neffort: str = "quick"  # e\nsize: int = 1  # s'
        )
        parameters.metadata.tags = ["parameters"]
        book.cells = [parameters, nbformat.v4.new_code_cell(code)]
        nbformat.write(book, folder / "00_lesson.ipynb")
        (folder / "course.toml").write_text(COURSE, encoding="utf-8")

    monkeypatch.setattr(manifest_module.host, "repository_root", lambda: tmp_path)
    return write


def invoke(*arguments):
    return CliRunner().invoke(build_app(arguments[0]), list(map(str, arguments)))


def test_run_prints_table_and_report_path(course, tmp_path):
    course("print(size)")
    done = invoke("run", "--mode", "replay", "-p", "size=4")
    assert done.exit_code == 0, done.output
    (folder,) = (tmp_path / "runs").iterdir()
    assert "00 Lesson" in done.output and f"Report: {folder / 'index.html'}" in done.output
    assert "00 Lesson: 0 of 3 cells" in done.output  # plain lines: this is no terminal


def test_run_as_json_keeps_progress_off_stdout(course, tmp_path):
    course("print(size)")
    done = invoke("run", "0", "--mode", "replay", "--json", "--out", tmp_path / "out")
    data = json.loads(done.stdout)
    assert data["status"] == "passed" and data["index"] == str(tmp_path / "out" / "index.html")
    assert [row["id"] for row in data["notebooks"]] == ["00"]


def test_a_failed_notebook_is_exit_code_one_and_can_be_resumed(course, tmp_path):
    course("raise RuntimeError('broken [bold]')")
    done = invoke("run", "--mode", "replay", "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "RuntimeError: broken [bold]" in done.output and "raise RuntimeError" in done.output
    assert f"--resume {tmp_path / 'out'}" in done.output
    course("print('repaired')")
    done = invoke("run", "--resume", tmp_path / "out")
    assert done.exit_code == 0, done.output


def test_unknown_parameter_is_refused(course):
    course("1")
    done = invoke("run", "--mode", "replay", "-p", "sise=4")
    assert done.exit_code != 0 and "Did you mean 'size'" in str(done.exception)


def test_refresh_check_and_hygiene_have_exit_codes(course):
    course("print(size)")
    assert invoke("course", "refresh", "--check").exit_code == 1
    done = invoke("course", "refresh")
    assert done.exit_code == 0 and "00_lesson.ipynb: changed" in done.output
    assert invoke("course", "refresh", "--check").exit_code == 0
    done = invoke("course", "hygiene", "--json")
    assert done.exit_code == 1
    assert {"rule", "notebook", "cell", "message"} == set(json.loads(done.stdout)[0])


def test_map_prints_the_readme_table(course):
    course("1")
    assert "| 00 | [Lesson](notebooks/00_lesson.ipynb)" in invoke("course", "map").output
