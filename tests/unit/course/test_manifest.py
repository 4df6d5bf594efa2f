from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import ConfigError, UsageError
from turbo_lab.course.manifest import load_manifest, map_rows
from turbo_lab.course.parameters import (
    check_parameters,
    parse_assignments,
    parse_parameters,
)


def test_select_by_number_short_number_and_file_name(make_course, notebook_of):
    course = make_course(notebook_of(), notebook_of(), notebook_of())
    for name in ("1", "01", "01_lesson", "01_lesson.ipynb", "notebooks/01_lesson.ipynb"):
        assert [entry.id for entry in course.select([name])] == ["01"]
    assert [entry.id for entry in course.select(["02", "00", "0"])] == ["00", "02"]
    assert len(course.select()) == 3


def test_unknown_notebook_names_what_exists(make_course, notebook_of):
    with pytest.raises(UsageError, match=r"'07'.*Allowed: 00, 01"):
        make_course(notebook_of(), notebook_of()).select(["07"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id = "00"', 'id = "0"', "two digits"),
        ("minutes = 1", "minutes = 0", "must be positive"),
        ("minutes = 1", 'minutes = "1"', "a number is wanted"),
        ("minutes = 1", "minutes = true", "a number is wanted"),
        ("What is 00?", "What is 00", "question mark"),
        ("needs = []", 'needs = ["gpus"]', "Did you mean 'gpu'"),
        ('status = "draft"', 'status = "done"', "Allowed: draft, ready"),
        ("smoke = true", 'smoke = "yes"', "true or false"),
        ("smoke = true", "smok = true", "Did you mean 'smoke'"),
        ("smoke = true", "", "field missing: smoke"),
        ("00_lesson.ipynb", "lesson.ipynb", "00_lower_case_name.ipynb"),
        ("[[notebook]]", "[[notebook]", "not valid TOML"),
        ("[[notebook]]", "[[lesson]]", "lists no notebook"),
    ],
)
def test_wrong_entry_is_refused_with_its_name(make_course, notebook_of, old, new, message):
    folder = make_course(notebook_of()).folder
    path = folder / "course.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_manifest(folder)


def test_ids_must_ascend_and_be_unique(make_course, notebook_of):
    folder = make_course(notebook_of(), notebook_of()).folder
    path = folder / "course.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text + text, encoding="utf-8")
    with pytest.raises(ConfigError, match="unique and ascending"):
        load_manifest(folder)


def test_missing_manifest_says_how_to_get_a_checkout(tmp_path):
    with pytest.raises(ConfigError, match="make course"):
        load_manifest(tmp_path)


def test_map_rows_hold_every_column(make_course, notebook_of):
    rows = map_rows(make_course(notebook_of(), notebook_of()))
    assert len(rows) == 4
    assert rows[2].startswith("| 00 | [Lesson 00](notebooks/00_lesson.ipynb) | What is 00? | 1 |")
    assert len({row.count("|") for row in rows}) == 1


def test_parameters_cell_is_read_with_types_defaults_and_comments():
    found = parse_parameters('name: str = "ü"  # a name\nlow: float = -1.5\nplain = 3')
    assert found["name"].comment == "a name"
    assert (found["name"].annotation, found["low"].default) == ("str", -1.5)
    assert found["plain"].annotation == ""


@pytest.mark.parametrize("source", ["import os", "a: list = [1]", "a: int", "a: int = b", "a = ("])
def test_parameters_cell_with_something_else_is_refused(source):
    with pytest.raises(ConfigError, match="parameters cell"):
        parse_parameters(source)


def test_unknown_and_mistyped_parameters_are_refused():
    declared = parse_parameters("size: int = 1\nrate: float = 1.0\non: bool = True")
    check_parameters({"size": 2, "rate": 1, "on": False}, declared=declared, notebook="nb")
    with pytest.raises(UsageError, match=r"nb has no parameter 'sise'\. Did you mean 'size'"):
        check_parameters({"sise": 2}, declared=declared, notebook="nb")
    for wrong in ({"size": "2"}, {"size": 1.5}, {"size": True}, {"on": 1}, {"rate": "x"}):
        with pytest.raises(UsageError, match="declares"):
            check_parameters(wrong, declared=declared, notebook="nb")
    with pytest.raises(UsageError, match="no parameters cell"):
        check_parameters({"size": 2}, declared={}, notebook="nb")


def test_assignments_of_the_command_line():
    read = parse_assignments(["a=4", "b=0.5", "c=true", "d=x=y", "e='q'", "f=null", "g=[1]"])
    expected = {"a": 4, "b": 0.5, "c": True, "d": "x=y", "e": "q", "f": None, "g": "[1]"}
    assert read == expected
    for wrong in ("a", "=3", "1a=3"):
        with pytest.raises(UsageError, match="name=value"):
            parse_assignments([wrong])


@given(st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False))
def test_assignment_keeps_the_value(value):
    (read,) = parse_assignments([f"x={value}"]).values()
    assert read == value and type(read) is type(value)
