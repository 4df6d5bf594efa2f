"""``check`` an answer, ``reveal`` a solution, keep progress on this machine.

Exercises live in ``checks/nbNN.py``, solutions in ``solutions/nbNN.py``. A teacher may remove the
solutions folder: ``check`` does not need it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from importlib import import_module, util
from typing import Any

from turbo_lab.core.errors import AnswerError, UsageError, did_you_mean
from turbo_lab.course import ledger
from turbo_lab.course.grading import Exercise, grade
from turbo_lab.course.prose import Prose

_ID = re.compile(r"(\d\d)\.\d")


def check(exercise_id: str, answer: Any = ...) -> None:
    """Print ``not attempted``, ``correct`` or the first failing case. Never raises.

    What is printed depends on the answer alone, not on earlier tries.
    """
    try:
        result = grade(find_exercise(exercise_id), answer)
        ledger.note(exercise_id, result.status)
        print(f"{exercise_id}: {result.message or result.status}")
    except UsageError as error:
        print(error)
    except Exception as error:  # an answer may hold objects that fail at anything
        print(f"{exercise_id}: could not be checked ({type(error).__name__}: {error})")


def require(exercise_id: str, answer: Any = ...) -> None:
    """As ``check``, but raise AnswerError unless the answer is correct: for graded cells."""
    result = grade(find_exercise(exercise_id), answer)
    if result.status != "correct":
        raise AnswerError(f"{exercise_id}: {result.message or result.status}")
    print(f"{exercise_id}: correct")


def reveal(exercise_id: str) -> None:
    """Print the task and the source of its tested solution."""
    try:
        exercise, solution = find_exercise(exercise_id), find_solution(exercise_id)
    except UsageError as error:
        print(error)
        return
    ledger.note(exercise_id, "revealed")
    print(f"# {exercise.id}: {exercise.task}\n{inspect.getsource(solution).rstrip()}")


def list_exercises(notebook: str) -> tuple[Exercise, ...]:
    """All exercises of a notebook (``"01"``). Raises UsageError when it has none."""
    module = f"turbo_lab.course.checks.nb{notebook}"
    if not re.fullmatch(r"\d\d", str(notebook)) or util.find_spec(module) is None:
        raise UsageError(f"There are no exercises for notebook {notebook!r}.")
    return import_module(module).EXERCISES


def find_exercise(exercise_id: str) -> Exercise:
    """The exercise of that id (``"03.1"``). Raises UsageError naming those that exist."""
    match = _ID.fullmatch(str(exercise_id))
    if match is None:
        raise UsageError(f"There is no exercise {exercise_id!r}; ids look like '03.1'.")
    known = {one.id: one for one in list_exercises(match[1])}
    if exercise_id not in known:
        raise UsageError(
            f"There is no exercise {exercise_id!r}.{did_you_mean(exercise_id, [*known])}"
        )
    return known[exercise_id]


def find_solution(exercise_id: str) -> Callable[..., Any]:
    """The solution: the function asked for, or a function that returns the value asked for.

    Raises UsageError where the solutions were taken out of this copy.
    """
    find_exercise(exercise_id)
    try:
        module = import_module(f"turbo_lab.course.solutions.nb{exercise_id[:2]}")
    except ModuleNotFoundError:
        raise UsageError(f"{exercise_id}: the solutions are not part of this copy.") from None
    solutions: Mapping[str, Callable[..., Any]] = module.SOLUTIONS
    return solutions[exercise_id]


def progress() -> Prose:
    """What was solved so far on this machine, as a Markdown list by notebook."""
    states = ledger.read()
    lines = []
    for notebook in sorted({key[:2] for key in states}):
        mine = {key: state for key, state in sorted(states.items()) if key[:2] == notebook}
        solved = [key for key, state in mine.items() if state == "correct"]
        total = len(list_exercises(notebook))
        lines.append(f"- {notebook}: {len(solved)} of {total} correct ({', '.join(solved)})")
    return Prose("\n".join(lines) or "No exercise was tried yet.")
