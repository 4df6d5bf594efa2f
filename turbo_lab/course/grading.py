"""Judge an answer by cases and properties that hold on every machine."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from turbo_lab.course.sampling import number

Status = Literal["not attempted", "correct", "wrong"]
Property = Callable[[Any], str | None]
SHOWN_CHARACTERS = 120


@dataclass(frozen=True)
class Case:
    """One call of the answer and what it must give (relative tolerance for numbers)."""

    args: tuple[Any, ...]
    expected: Any
    hint: str = ""
    tolerance: float = 1e-9


@dataclass(frozen=True)
class Mistake:
    """A known wrong answer. It must fail; whoever gives the same results reads ``hint``."""

    hint: str
    answer: Any


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    ``expected`` is for an answer that is a value; ``cases`` and ``properties`` are for one that is
    a function (a property returns what is wrong, or None). ``task`` is the question in one line.
    """

    id: str
    task: str
    mistakes: tuple[Mistake, ...]
    cases: tuple[Case, ...] = ()
    properties: tuple[Property, ...] = ()
    expected: Any = None

    @property
    def wants_function(self) -> bool:
        """True when the answer is a function, False when it is a value."""
        return bool(self.cases)


@dataclass(frozen=True)
class Grade:
    """The outcome: ``message`` holds the first failing case and, if known, the likely mistake."""

    status: Status
    message: str = ""


def case(*args: Any, gives: Any, hint: str = "", tolerance: float = 1e-9) -> Case:
    """``case(8, 4096, gives=4.0)``: the answer called with these arguments gives that."""
    return Case(args, gives, hint, tolerance)


def grade(exercise: Exercise, answer: Any) -> Grade:
    """Judge ``answer``. Errors inside it are part of the message, they are not raised."""
    if answer is ... or answer is None:
        return Grade("not attempted")
    if exercise.wants_function:
        return _grade_function(exercise, answer)
    return _grade_value(exercise, answer)


def _grade_function(exercise: Exercise, answer: Any) -> Grade:
    if not callable(answer):
        return Grade("wrong", "a function is wanted: pass its name without brackets, check(id, f).")
    results = [_call(answer, one) for one in exercise.cases]
    if _is_stub(exercise, results):
        return Grade("not attempted")
    for one, result in zip(exercise.cases, results, strict=True):
        if not _fits(result, one):
            message = _failure(answer, one, result)
            return Grade("wrong", message + _likely_mistake(exercise, results))
    for check in exercise.properties:
        if (problem := _ask(check, answer)) is not None:
            return Grade("wrong", problem)
    return Grade("correct")


def _grade_value(exercise: Exercise, answer: Any) -> Grade:
    if callable(answer):
        return Grade("wrong", "a value is wanted, not a function.")
    if isinstance(exercise.expected, Mapping) and isinstance(answer, Mapping):
        return _grade_mapping(exercise, answer)
    if same(answer, exercise.expected):
        return Grade("correct")
    hints = [m.hint for m in exercise.mistakes if same(answer, m.answer)]
    return Grade("wrong", f"{_short(answer)} is not it." + (f" {hints[0]}" if hints else ""))


def _grade_mapping(exercise: Exercise, answer: Mapping[Any, Any]) -> Grade:
    if all(value is ... for value in answer.values()):
        return Grade("not attempted")
    for key, wanted in exercise.expected.items():
        given = answer.get(key, ...)
        if given is ...:
            return Grade("wrong", f"{key!r} is not filled in.")
        if not same(given, wanted):
            hints = [m.hint for m in exercise.mistakes if same(answer, m.answer)]
            tail = f" {hints[0]}" if hints else ""
            return Grade("wrong", f"{key!r}: {_short(given)} is not it.{tail}")
    return Grade("correct")


@dataclass(frozen=True)
class _Raised:
    text: str


def _call(answer: Callable[..., Any], one: Case) -> Any:
    """The result, or what it raised. Arguments are copied: an answer may spoil its own only."""
    try:
        return answer(*copy.deepcopy(one.args))
    except (Exception, SystemExit) as error:
        return _Raised(f"{type(error).__name__}: {error}".rstrip(": "))


def _is_stub(exercise: Exercise, results: Sequence[Any]) -> bool:
    """A stub's body is ``...``: it gives Ellipsis or None for whatever it is asked."""
    wanted = any(one.expected is not None for one in exercise.cases)
    return wanted and all(result is ... or result is None for result in results)


def _fits(result: Any, one: Case) -> bool:
    return not isinstance(result, _Raised) and same(result, one.expected, tolerance=one.tolerance)


def _failure(answer: Any, one: Case, result: Any) -> str:
    name = getattr(answer, "__name__", "answer")
    call = f"{name if name != '<lambda>' else 'answer'}({', '.join(_short(a) for a in one.args)})"
    ending = f" {one.hint}" if one.hint else ""
    if isinstance(result, _Raised):
        return f"{call} raised {result.text}.{ending}"
    return f"{call} gave {_short(result)}, expected {_short(one.expected)}.{ending}"


def _likely_mistake(exercise: Exercise, results: Sequence[Any]) -> str:
    """The hint of the known mistake that gives the same result in every case, if there is one."""
    if any(isinstance(result, _Raised) for result in results):
        return ""
    for mistake in exercise.mistakes:
        theirs = [_call(mistake.answer, one) for one in exercise.cases]
        if all(same(a, b) for a, b in zip(results, theirs, strict=True)):
            return f" {mistake.hint}"
    return ""


def _ask(check: Property, answer: Any) -> str | None:
    try:
        return check(answer)
    except (Exception, SystemExit) as error:
        return f"{check.__doc__ or 'a property'} It raised {type(error).__name__}: {error}."


def same(one: Any, other: Any, *, tolerance: float = 1e-9) -> bool:
    """Equality for answers: numbers within a relative tolerance, sequences and dicts by part."""
    if isinstance(one, _Raised) or isinstance(other, _Raised):
        return one == other
    if isinstance(one, bool) or isinstance(other, bool):
        return isinstance(one, bool) and isinstance(other, bool) and one == other
    left, right = number(one), number(other)
    if left is not None and right is not None:
        return math.isclose(left, right, rel_tol=tolerance, abs_tol=1e-12)
    if hasattr(one, "tolist"):
        one = one.tolist()
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in other)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(
            same(a, b, tolerance=tolerance) for a, b in zip(one, other, strict=True)
        )
    return type(one) is type(other) and one == other


def _short(value: Any) -> str:
    value = number(value) if number(value) is not None and not isinstance(value, bool) else value
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 4] + " ..."
