"""Typed-in measurements, and the check of a whole course."""

from __future__ import annotations

from typing import Any

import pytest
from nbformat.v4 import new_code_cell as code
from nbformat.v4 import new_markdown_cell

from turbo_lab.core.errors import ConfigError
from turbo_lab.course import hygiene, hygiene_prose
from turbo_lab.course.hygiene import check_course, check_notebook


def add(*cells: Any):
    def change(book: Any) -> None:
        book.cells[-2:-2] = cells

    return change


@pytest.fixture
def broken(findings):
    return lambda **options: [finding.rule for finding in findings(**options)]


class Row:
    """A part of a record, as far as the rule looks at it."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def record(value: float, **more: Any) -> Any:
    measurement = Row(name="ttft", value=value, samples=(value,), reason=None)
    parts = {"predictions": (), "measurements": (measurement,), "comparison": (),
             "observations": ()}  # fmt: skip
    return Row(**{**parts, **more})


@pytest.mark.parametrize(
    ("value", "prose"),
    [
        (0.21437, "It took 0.214 s."),
        (0.21437, "It took 214 ms."),
        (0.21437, "It took 214.4 ms."),
        (46592.0, "The pool has 46,592 tokens."),
        (46592, "The pool has 46592 tokens."),
        (3221225472, "It needs 3.00 GiB."),
        (0.873, "87.3 % were accepted."),
    ],
)
def test_a_measured_number_typed_into_prose_is_found(broken, value, prose):
    assert broken(before=add(new_markdown_cell(prose)), records=(record(value),)) == [
        "measured-number"
    ]


@pytest.mark.parametrize(
    ("value", "prose"),
    [
        (0.21437, "It took 0.21 s, about 210 ms, not 0.215 s."),
        (2017.0, "The paper of 2017 says so."),
        (0.21437, "See https://example.org/0.214/x and [here](papers/214.4)."),
        (0.5, "A half, 50 %, 0.5."),
        (1.281, "Messages of 128 bytes."),
        (1.0238, "Lengths of 1,024 tokens."),
    ],
)
def test_other_numbers_are_left_alone(broken, value, prose):
    assert broken(before=add(new_markdown_cell(prose)), records=(record(value),)) == []


def test_a_number_declared_in_code_or_exact_by_formula_is_no_measurement(broken):
    prose = new_markdown_cell("With 49,152 bytes per token.")
    assert broken(before=add(prose, code("b = 49_152")), records=(record(49152),)) == []
    exact = record(49152, predictions=(Row(value=49152, tolerance=0),))
    assert broken(before=add(prose), records=(exact,)) == []
    assert broken(before=add(prose), records=(record(49152),)) == ["measured-number"]


def test_ratios_samples_and_observations_count_as_measured():
    many = record(
        1.0,
        comparison=(Row(name="ttft", ratio=1.237),),
        observations=(Row(name="gaps", data={"a": [0.01234, 7]}),),
    )
    values = list(hygiene_prose._measured(many))
    assert hygiene_prose._match("1.24", values) == "ttft (the ratio)"
    assert hygiene_prose._match("12.34", values) == "gaps (observed)"
    assert hygiene_prose._match("12.3", values) is None


def test_check_course_reports_missing_damaged_and_unlisted_files(make_course, notebook_of):
    course = make_course(notebook_of("1"), notebook_of("1"))
    (course.folder / "00_lesson.ipynb").unlink()
    (course.folder / "09_extra.ipynb").write_text("{}", encoding="utf-8")
    files = {f.notebook: f.message for f in check_course(course) if f.rule == "file"}
    assert "missing" in files["00_lesson.ipynb"]
    assert "not listed" in files["09_extra.ipynb"]
    with pytest.raises(ConfigError):
        check_notebook(course.folder / "09_extra.ipynb")


def test_a_course_uses_the_records_of_its_own_notebook(make_course, notebook_of, monkeypatch):
    asked = []
    monkeypatch.setattr(hygiene, "stored_records", lambda name: asked.append(name) or ())
    check_course(make_course(notebook_of("1"), notebook_of("1")), wanted=("01",))
    assert asked == ["01"]
