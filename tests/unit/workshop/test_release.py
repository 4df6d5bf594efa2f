"""Student copies: checks inside, solutions nowhere, and a format that nbgrader reads."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from turbo_lab.core.errors import AnswerError, ConfigError, UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.course.exercises import find_solution, list_exercises, require
from turbo_lab.course.notebook_file import output_text
from turbo_lab.workshop.nbgrader import graded_source
from turbo_lab.workshop.release import Release, make_release


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Release:
    folder = tmp_path_factory.mktemp("release") / "course"
    return make_release(folder, notebooks=("00", "03"), nbgrader=True)


def notebooks(release: Release) -> list[nbformat.NotebookNode]:
    paths = sorted((release.folder / "notebooks").glob("*.ipynb"))
    return [nbformat.read(path, as_version=4) for path in paths]


def test_only_the_chosen_notebooks_with_all_their_exercises(released: Release) -> None:
    listed = tomllib.loads((released.folder / "notebooks/course.toml").read_text())["notebook"]
    assert [row["id"] for row in listed] == ["00", "03"]
    assert released.exercises == {
        n: tuple(e.id for e in list_exercises(n)) for n in ("00", "03")
    }  # fmt: skip


def test_no_file_of_the_solutions_and_no_output_that_shows_one(released: Release) -> None:
    assert not (released.folder / "turbo_lab/course/solutions").exists()
    assert (released.folder / "turbo_lab/course/checks/nb03.py").is_file()
    bodies = {
        line.strip()
        for number in ("00", "03")
        for exercise in list_exercises(number)
        for line in inspect.getsource(find_solution(exercise.id)).splitlines()[1:]
        if line.strip().startswith("return ") and len(line.strip()) > 25
    }
    assert bodies
    for notebook in notebooks(released):
        for cell in notebook.cells:
            text = cell.source + "".join(output_text(o) for o in cell.get("outputs", []))
            assert not [body for body in bodies if body in text]


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md", "CONTRIBUTING.md"])
def test_what_the_texts_link_to_is_there(released: Release, name: str) -> None:
    text = (released.folder / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
    left_out = [n for n in links if n.startswith("notebooks/")]  # only some were chosen
    missing = [n for n in links if n not in left_out and not (released.folder / n).exists()]
    assert not missing


def test_check_works_there_and_reveal_says_why_not(released: Release) -> None:
    code = (
        "from turbo_lab.course import check, reveal\nimport turbo_lab\nprint(turbo_lab.__file__)\n"
        "check('00.1', lambda ttft, tpot, n: ttft + tpot * (n - 1))\nreveal('00.1')"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(released.folder),
        "TURBO_LAB_PROGRESS": os.devnull,
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True,
        cwd=released.folder,
    )  # fmt: skip
    assert str(released.folder) in done.stdout, done.stderr
    assert "00.1: correct" in done.stdout
    assert "solutions are not part of this copy" in done.stdout


def test_cells_follow_nbgraders_format(released: Release) -> None:
    for notebook in notebooks(released):
        nbformat.validate(notebook)
        marked = [c for c in notebook.cells if "nbgrader" in c.metadata]
        names = [c.metadata.nbgrader.grade_id for c in marked]
        assert len(names) == len(set(names)) > 0
        for student, graded in zip(marked[::2], marked[1::2], strict=True):
            assert student.metadata.nbgrader.solution and not student.metadata.nbgrader.grade
            assert graded.metadata.nbgrader.grade and graded.metadata.nbgrader.locked
            assert graded.metadata.nbgrader.points == 1


def test_stubs_survive_nbgraders_release(released: Release) -> None:
    """ClearSolutions would empty the cells: our stubs have no solution regions."""
    told: dict[str, SimpleNamespace] = {}

    def get_config() -> SimpleNamespace:
        told["c"] = SimpleNamespace(
            CourseDirectory=SimpleNamespace(), GenerateAssignment=SimpleNamespace()
        )
        return told["c"]

    exec((released.folder / "nbgrader_config.py").read_text(), {"get_config": get_config})
    used = told["c"].GenerateAssignment.preprocessors
    assert "nbgrader.preprocessors.SaveCells" in used
    assert not [name for name in used if "Clear" in name and "Output" not in name]


def test_nbgrader_itself_accepts_them(released: Release) -> None:
    validator = pytest.importorskip("nbgrader.nbgraderformat.v3", reason="needs nbgrader")
    for notebook in notebooks(released):
        validator.MetadataValidatorV3().validate_nb(notebook)


def test_the_graded_cell_asks_for_the_same_answer() -> None:
    source = 'def f(x):\n    return ...\n\n\ncheck("03.1", f)\n'
    assert graded_source(source, "03.1").endswith('require("03.1", f)')
    assert '{"a": 1}' in graded_source('check("00.5", {"a": 1})', "00.5").replace("'", '"')
    with pytest.raises(ConfigError, match=r"03\.2"):
        graded_source(source, "03.2")


def test_require_raises_unless_correct() -> None:
    require("00.1", find_solution("00.1"))
    with pytest.raises(AnswerError, match=r"00\.1: not attempted"):
        require("00.1", ...)
    with pytest.raises(AnswerError, match=r"00\.1: .*gave"):
        require("00.1", lambda *_: -1.0)


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is in use"):
        make_release(tmp_path)
    with pytest.raises(UsageError, match="inside the package"):
        make_release(repository_root() / "turbo_lab" / "new")
    with pytest.raises(UsageError, match="no notebook '99'"):
        make_release(tmp_path / "new", notebooks=("99",))
    assert not (tmp_path / "new").exists()
