from __future__ import annotations

import inspect
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.course import check, exercises, ledger, reveal
from turbo_lab.course.exercises import find_exercise, find_solution, list_exercises
from turbo_lab.course.grading import Exercise, Mistake, case, grade, same

NOTEBOOKS = ("00", "01", "02", "03")
ALL = [one for notebook in NOTEBOOKS for one in list_exercises(notebook)]
MISTAKES = [(one, mistake) for one in ALL for mistake in one.mistakes]
by_id = pytest.mark.parametrize("exercise", ALL, ids=lambda one: one.id)


@pytest.fixture(autouse=True)
def own_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("TURBO_LAB_PROGRESS", str(tmp_path / "progress.json"))
    return tmp_path / "progress.json"


def solution_of(exercise):
    solution = find_solution(exercise.id)
    return solution if exercise.wants_function else solution()


# --- every exercise of the course


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_each_notebook_has_four_to_six_exercises_numbered_in_order(notebook):
    ids = [one.id for one in list_exercises(notebook)]
    assert 4 <= len(ids) <= 6
    assert ids == [f"{notebook}.{n}" for n in range(1, len(ids) + 1)]


@by_id
def test_the_solution_is_correct(exercise):
    assert grade(exercise, solution_of(exercise)).status == "correct"


@pytest.mark.parametrize(
    ("exercise", "mistake"), MISTAKES, ids=lambda one: getattr(one, "id", "") or "mistake"
)
def test_known_wrong_answers_fail_with_their_hint(exercise, mistake):
    result = grade(exercise, mistake.answer)
    assert result.status == "wrong"
    assert mistake.hint in result.message and "raised" not in result.message


@by_id
def test_there_are_mistakes_and_every_case_can_fail(exercise):
    assert len(exercise.mistakes) >= 2
    assert bool(exercise.cases) != (exercise.expected is not None)
    assert exercise.task and len({m.hint for m in exercise.mistakes}) == len(exercise.mistakes)


@by_id
def test_stubs_are_not_attempted(exercise):
    def says_ellipsis(*args):
        return ...

    def says_nothing(*args): ...

    assert grade(exercise, ...).status == "not attempted"
    if exercise.wants_function:
        assert grade(exercise, says_ellipsis).status == "not attempted"
        assert grade(exercise, says_nothing).status == "not attempted"
    else:
        blank = dict.fromkeys(exercise.expected, ...)
        assert grade(exercise, blank).status == "not attempted"


@by_id
def test_solutions_stand_on_their_own_and_are_short(exercise):
    solution = find_solution(exercise.id)
    source = inspect.getsource(solution)
    assert solution.__doc__ and len(source.splitlines()) <= 25
    module = sys.modules[solution.__module__]
    used = {name for name in solution.__code__.co_names if hasattr(module, name)}
    assert used <= {"math", "comb"}


# --- what check prints


def test_check_prints_the_status(capsys):
    check("01.1", ...)
    check("01.1", find_solution("01.1"))
    check("01.1")
    lines = ["01.1: not attempted", "01.1: correct", "01.1: not attempted"]
    assert capsys.readouterr().out.splitlines() == lines


def test_check_prints_the_first_failing_case_and_the_likely_mistake(capsys):
    def kv_cache_gib(b, s, n, h, d, e):
        return b * s * n * h * d * e / 2**30

    check("01.1", kv_cache_gib)
    assert capsys.readouterr().out == (
        "01.1: kv_cache_gib(8, 4096, 32, 8, 128, 2) gave 2.0, expected 4.0. The source's own "
        "example: 4.00 GiB. Keys and values are both kept: a factor 2 is missing.\n"
    )


def test_an_answer_that_raises_is_a_message(capsys):
    check("00.1", lambda ttft, tpot, n: 1 / 0)
    assert "answer(1.0, 0.05, 101) raised ZeroDivisionError: division by zero" in (
        capsys.readouterr().out
    )


class Nasty:
    """An object that fails at whatever it is asked."""

    def __getattribute__(self, name):
        raise RuntimeError("no")

    __eq__ = __repr__ = __call__ = __len__ = lambda *args: 1 / 0


@pytest.mark.parametrize(
    "answer",
    [
        5,
        "text",
        {},
        [],
        float("nan"),
        print,
        int,
        Nasty,  # made in the test: pytest itself would stumble over an instance
        lambda: None,
        lambda *a: sys.exit(1),
        lambda *a: Nasty(),
        lambda *a: {"x": 1},
        lambda *a: (lambda f: f(f))(lambda f: f(f)),
    ],
)
@pytest.mark.parametrize("exercise_id", ["00.2", "00.5", "01.1", "03.1", "03.3"])
def test_check_never_raises_and_never_accepts_nonsense(capsys, exercise_id, answer):
    check(exercise_id, Nasty() if answer is Nasty else answer)
    verdict = capsys.readouterr().out.splitlines()[-1]  # an answer such as print may say more
    assert verdict.startswith(f"{exercise_id}: ") and "correct" not in verdict


@pytest.mark.parametrize("exercise_id", ["01.9", "77.1", "x", "", None, "01.1.1", 3.1])
def test_unknown_exercises_are_named(capsys, exercise_id):
    check(exercise_id, 1)
    reveal(exercise_id)
    assert capsys.readouterr().out.count("There ") == 2


def test_an_answer_may_not_spoil_the_cases():
    exercise = find_exercise("03.1")
    before = [list(one.args[0]) for one in exercise.cases]
    for mistake in exercise.mistakes:
        grade(exercise, mistake.answer)
    assert [list(one.args[0]) for one in exercise.cases] == before


def test_an_interrupt_is_passed_on():
    def interrupted(*args):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check("00.1", interrupted)


def test_reveal_prints_task_and_source(capsys):
    reveal("03.1")
    out = capsys.readouterr().out
    assert out.startswith("# 03.1: Repair") and "def percentile(" in out


def test_solutions_may_be_taken_out(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "turbo_lab.course.solutions.nb01", None)
    reveal("01.1")
    assert "solutions are not part of this copy" in capsys.readouterr().out
    check("01.1", lambda *a: 3.0)
    assert "gave 3.0, expected 4.0" in capsys.readouterr().out


# --- progress


def test_progress_is_kept_and_never_falls_back(own_progress):
    check("01.1", lambda *a: 3.0)
    assert json.loads(own_progress.read_text()) == {"01.1": "wrong"}
    check("01.1", find_solution("01.1"))
    check("01.1", lambda *a: 3.0)
    reveal("01.1")
    assert ledger.read() == {"01.1": "correct"}
    assert repr(exercises.progress()) == "- 01: 1 of 6 correct (01.1)"


def test_output_does_not_depend_on_progress(capsys):
    def output():
        check("01.1", find_solution("01.1"))
        check("01.2", ...)
        return capsys.readouterr().out

    assert output() == output()


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"01.1": "king"}'])
def test_a_damaged_progress_file_is_no_error(own_progress, capsys, content):
    own_progress.write_text(content)
    check("01.1", find_solution("01.1"))
    assert capsys.readouterr().out == "01.1: correct\n"
    assert ledger.read() == {"01.1": "correct"}


def test_progress_that_cannot_be_written_is_no_error(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TURBO_LAB_PROGRESS", str(tmp_path / "file" / "progress.json"))
    check("01.1", find_solution("01.1"))
    assert capsys.readouterr().out == "01.1: correct\n"
    assert repr(exercises.progress()) == "No exercise was tried yet."


# --- grading


@given(st.floats(1e-6, 1e6), st.floats(0.001, 1.0))
def test_numbers_agree_within_their_tolerance_only(value, tolerance):
    assert same(value * (1 + tolerance * 0.99), value, tolerance=tolerance)
    assert not same(value * (1 + tolerance * 1.2), value, tolerance=tolerance / 2)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (True, 1),
        (0, False),
        ("1", 1),
        (None, 0),
        ([1], [1, 2]),
        ({"a": 1}, {"b": 1}),
        (float("nan"), 1),
    ],
)
def test_different_things_are_not_the_same(one, other):
    assert not same(one, other) and not same(other, one)


def test_a_failing_property_is_the_message():
    exercise = Exercise(
        id="99.1",
        task="",
        cases=(case(1, gives=1),),
        properties=(lambda f: None if f(-1) == 1 else "f(-1) must be 1",),
        mistakes=(Mistake("sign", lambda x: x),),
    )
    assert grade(exercise, abs).status == "correct"
    assert grade(exercise, lambda x: x).message == "f(-1) must be 1"
