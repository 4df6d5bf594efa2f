"""Results on disk, and submissions as they are found."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import RecordError, UsageError
from turbo_lab.workshop.limits import Limits
from turbo_lab.workshop.results import (
    COLUMNS,
    Results,
    Row,
    as_csv,
    check_target,
    read_results,
    write_results,
)
from turbo_lab.workshop.submissions import exercises_in, find_submissions, read_cells


def results() -> Results:
    found = Results(["network: none"], Limits().to_json())
    found.replace("ada", "03", [Row("ada", "03", "03.1", "passed", "", 1.5)], "d1")
    return found


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write_results(results(), path)
    assert read_results(path) == results()
    assert path.with_suffix(".csv").read_text().splitlines()[1] == "ada,03,03.1,passed,,1.50"


def test_rows_of_a_notebook_are_replaced_whole() -> None:
    found = results()
    found.replace("ada", "03", [Row("ada", "03", "03.2", "failed")], "d2")
    assert [r.exercise for r in found.rows] == ["03.2"] and found.done == {"ada/03": "d2"}
    assert found.counts() == {"ada": {"failed": 1}}


@given(st.text(max_size=40))
def test_no_text_becomes_a_formula_or_another_line(text: str) -> None:
    table = as_csv([Row(text, "03", "03.1", "failed", text)])
    rows = list(csv.reader(io.StringIO(table)))
    assert len(rows) == 2 and len(rows[1]) == len(COLUMNS)
    assert not rows[1][4].startswith(("=", "+", "-", "@"))


def test_targets_are_checked_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}")
    for name, said in (("r.txt", "csv"), ("no/r.csv", "no folder"), ("old.csv", "--resume")):
        with pytest.raises(UsageError, match=said):
            check_target(tmp_path / name, resume=False)
    with pytest.raises(RecordError, match="cannot be continued"):
        read_results(check_target(tmp_path / "old.csv", resume=True))


def test_notebooks_are_found_below_a_students_folder(tmp_path: Path) -> None:
    for name in ("ada/hw1/03_a.ipynb", "ada/.ipynb_checkpoints/03_a-checkpoint.ipynb",
                 "ada/notes.ipynb", "bob/04_x.ipynb", ".hidden/03_a.ipynb"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "eve").symlink_to(tmp_path / "ada")
    found = {s.student: list(s.notebooks) for s in find_submissions(tmp_path)}
    assert found == {"ada": ["03"], "bob": ["04"], "eve": []}
    for wrong in (tmp_path / "none", tmp_path / "bob"):
        with pytest.raises(UsageError, match="one folder per student"):
            find_submissions(wrong)


@pytest.mark.parametrize(
    ("text", "said"),
    [("[]", "format 4"), ('{"worksheets": []}', "format 4"), ("[" * 9000, "cannot be read"),
     ('{"cells": [{"cell_type": "code", "source": 3}]}', "neither text")],
)  # fmt: skip
def test_files_that_are_no_notebook(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.ipynb").write_text(text)
    with pytest.raises(RecordError, match=said):
        read_cells((tmp_path / "x.ipynb",))


def test_exercises_of_a_cell() -> None:
    assert exercises_in("check(\"03.1\", f)\nrequire( '03.2', g)") == ("03.1", "03.2")
    assert exercises_in("check(name, f); recheck('03.1')") == ()


@pytest.mark.parametrize("wrong", [{"wall_s": 0}, {"cpu_s": float("nan")}, {"memory_bytes": 1000}])
def test_limits_that_nothing_could_live_with(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="allowed"):
        Limits(**wrong)
