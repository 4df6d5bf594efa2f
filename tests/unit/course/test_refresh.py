from __future__ import annotations

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core import host
from turbo_lab.core.errors import TurboLabError
from turbo_lab.course.refresh import (
    normalise,
    refresh_course,
    refresh_notebook,
    relative_paths,
    require_success,
)

SOURCE = """import sys, os
print("mode", os.environ["TURBO_LAB_MODE"], mode)
print("to stderr", file=sys.stderr)
print("path", os.path.join(os.environ["REPOSITORY"], "data", "x.json"))"""


def test_refresh_twice_gives_the_same_bytes(make_course, notebook_of, monkeypatch):
    monkeypatch.setenv("REPOSITORY", str(host.repository_root()))
    monkeypatch.setenv("TURBO_LAB_MODE", "cpu")  # refresh is replay whatever the shell says
    course = make_course(notebook_of(SOURCE, "size + 1"))
    path = course.folder / "00_lesson.ipynb"
    assert [r.status for r in refresh_course(course, check=True)] == ["changed"]
    assert [r.status for r in refresh_course(course)] == ["changed"]
    first = path.read_bytes()
    assert [r.status for r in refresh_course(course)] == ["unchanged"]
    assert path.read_bytes() == first
    book = nbformat.reads(first.decode(), as_version=4)
    assert book.metadata.turbo_lab.mode == "replay" and "papermill" not in book.metadata
    assert all("papermill" not in cell.metadata for cell in book.cells)
    assert len(book.cells) == 4  # no injected parameters
    texts = {o.name: o.text for o in book.cells[2].outputs}
    assert texts["stdout"] == "mode replay auto\npath data/x.json\n"
    assert book.cells[3].outputs[0].data["text/plain"] == "2"
    assert [c.execution_count for c in book.cells if c.cell_type == "code"] == [1, 2, 3]


def test_check_sees_a_changed_output_and_writes_nothing(make_course, notebook_of):
    course = make_course(notebook_of("print('same')"))
    list(refresh_course(course))
    path = course.folder / "00_lesson.ipynb"
    text = path.read_text(encoding="utf-8").replace("same\\n", "older\\n")
    path.write_text(text, encoding="utf-8")
    results = list(refresh_course(course, check=True))
    assert [r.status for r in results] == ["changed"]
    assert path.read_text(encoding="utf-8") == text
    with pytest.raises(TurboLabError, match=r"not up to date: 00_lesson\.ipynb"):
        require_success(results, check=True)
    require_success(results, check=False)


def test_check_does_not_look_at_the_pixels(make_course, notebook_of):
    code = (
        "import base64, random\nfrom IPython.display import Image, display\n"
        "noise = base64.b64encode(random.randbytes(9)).decode()\n"
        "display({'image/png': noise, 'text/plain': '<Figure>'}, raw=True)"
    )
    course = make_course(notebook_of(code))
    list(refresh_course(course))
    assert [r.status for r in refresh_course(course, check=True)] == ["unchanged"]


def test_a_failing_notebook_is_left_alone(make_course, notebook_of):
    course = make_course(notebook_of("1/0"), notebook_of("1"))
    path = course.folder / "00_lesson.ipynb"
    before = path.read_bytes()
    results = list(refresh_course(course))
    assert [r.status for r in results] == ["failed", "changed"]
    assert path.read_bytes() == before
    with pytest.raises(TurboLabError, match=r"00_lesson\.ipynb: ZeroDivisionError"):
        require_success(results, check=False)
    assert refresh_notebook(path).error.name == "ZeroDivisionError"


def test_normalise_repairs_missing_and_double_ids_and_is_idempotent(notebook_of):
    book = notebook_of("a", "b", "b")
    book.cells[2].id = book.cells[1].id
    del book.cells[3]["id"]
    normalise(book)
    ids = [cell.id for cell in book.cells]
    assert len(set(ids)) == len(ids)
    once = nbformat.writes(book)
    normalise(book)
    assert nbformat.writes(book) == once


def test_neighbouring_stream_outputs_are_joined(notebook_of):
    book = notebook_of("x")
    new = nbformat.v4.new_output
    book.cells[2].outputs = [
        new("stream", name="stdout", text="a"),
        new("stream", name="stdout", text="b\n"),
        new("stream", name="stderr", text="c"),
        new("stream", name="stdout", text="d"),
    ]
    normalise(book)
    assert [o.text for o in book.cells[2].outputs] == ["ab\n", "c", "d"]


def test_local_paths_become_relative(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    root = host.repository_root()
    assert relative_paths(f"at {root}/data/x and {root}") == "at data/x and ."
    assert relative_paths(f"{tmp_path}/.cache/log, {tmp_path}") == "~/.cache/log, ~"
    assert relative_paths(f"{tmp_path}x/log") == f"{tmp_path}x/log"


@given(st.text(alphabet="ab /\n", max_size=40))
def test_text_without_local_paths_is_not_changed(text):
    assert relative_paths(text) == text
