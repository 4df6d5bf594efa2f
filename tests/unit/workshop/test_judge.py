"""Every exercise of the course judged through the wire gives the verdict that ``check`` gives."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from turbo_lab.course.exercises import find_solution, list_exercises
from turbo_lab.course.grading import Exercise, grade
from turbo_lab.course.manifest import load_manifest
from turbo_lab.workshop.judge import VERDICTS, Verdict, judge_notebook
from turbo_lab.workshop.remote import LostError
from turbo_lab.workshop.worker import Worker, _kind

EXERCISES = [e for n in load_manifest().notebooks for e in list_exercises(n.id)]


class InProcess:
    """Answers for a submission in this process; everything passes through JSON text."""

    def __init__(self, answers: dict[str, Any], errors: dict[int, str] | None = None) -> None:
        self.worker = Worker(io.StringIO(), lambda message: None)
        self.worker.answers, self.errors = answers, errors or {}
        self.cell, self.alive = None, True

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def ask(self, do: str, **content: Any) -> dict[str, Any]:
        request = json.loads(json.dumps(content))
        if do == "run":
            kinds = {key: _kind(answer) for key, answer in self.worker.answers.items()}
            reply: dict[str, Any] = {"answers": kinds, "errors": self.errors}
        else:
            reply = getattr(self.worker, f"do_{do}")(request)
        return json.loads(json.dumps(reply))


def verdict(exercise: Exercise, answer: Any) -> Verdict:
    cell = f'check("{exercise.id}", answer)'
    start = lambda _: InProcess({exercise.id: answer})  # noqa: E731
    return judge_notebook([cell], [exercise], start=start, wall_s=60)[exercise.id]


def solution(exercise: Exercise) -> Any:
    found = find_solution(exercise.id)
    return found if exercise.wants_function else found()


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
def test_solutions_pass_and_mistakes_fail(exercise: Exercise) -> None:
    assert verdict(exercise, solution(exercise)) == Verdict("passed")
    for mistake in exercise.mistakes:
        local, far = grade(exercise, mistake.answer), verdict(exercise, mistake.answer)
        assert far.status == VERDICTS[local.status] == "failed"
        assert far.reason == local.message[:300]


@pytest.mark.parametrize("exercise", EXERCISES[:6], ids=lambda e: e.id)
@pytest.mark.parametrize("stub", [..., None, lambda *_: ..., lambda *_: None])
def test_a_stub_is_not_attempted(exercise: Exercise, stub: Any) -> None:
    assert verdict(exercise, stub).status == VERDICTS[grade(exercise, stub).status]


def test_odd_answers_are_told() -> None:
    exercise = list_exercises("00")[0]
    assert "no plain data" in verdict(exercise, lambda *_: object()).reason
    assert "ValueError: no" in verdict(exercise, _raises(ValueError("no"))).reason
    assert verdict(exercise, _raises(MemoryError())).status == "memory"
    assert verdict(exercise, _raises(BlockingIOError(11, "again"))).status == "processes"
    assert verdict(exercise, _raises(RuntimeError("can't start new thread"))).status == "processes"
    assert verdict(exercise, _raises(BlockingIOError("mine"))).status == "failed"
    assert verdict(exercise, _raises(SystemExit(0))).status == "failed"
    assert verdict(exercise, "text").status == "failed"


def _raises(error: BaseException) -> Any:
    def answer(*_: Any) -> Any:
        raise error

    return answer


class Dying(InProcess):
    """Dies at a cell that says so, unless it is left out."""

    started = 0

    def ask(self, do: str, **content: Any) -> dict[str, Any]:
        if do == "run":
            Dying.started += 1
            for number, source in enumerate(content["cells"]):
                if "die" in source and number not in content["skip"]:
                    self.cell = number
                    raise LostError("timeout", "no end")
        return super().ask(do, **content)


def test_one_endless_cell_costs_one_exercise() -> None:
    exercises = list_exercises("00")[:3]
    cells = [f'check("{e.id}", answer)' for e in exercises]
    cells[1] += "  # die"
    answers = {e.id: solution(e) for e in exercises}
    found = judge_notebook(cells, exercises, start=lambda _: Dying(answers), wall_s=60)
    assert [v.status for v in found.values()] == ["passed", "timeout", "passed"]


def test_restarts_are_bounded() -> None:
    exercises, Dying.started = list_exercises("00")[:2], 0
    cells = ["die"] * 20
    found = judge_notebook(cells, exercises, start=lambda _: Dying({}), wall_s=60)
    assert {v.status for v in found.values()} == {"timeout"} and Dying.started == 5


def test_why_there_is_no_answer() -> None:
    exercises = list_exercises("00")[:4]
    cells = ["1 / 0", *(f'check("{exercise.id}", x)' for exercise in exercises[:3])]
    errors = {1: "NameError: x", 2: "MemoryError", 3: "BlockingIOError: [Errno 11] again"}
    found = judge_notebook(cells, exercises, start=lambda _: InProcess({}, errors), wall_s=60)
    assert [v.status for v in found.values()] == ["failed", "memory", "processes", "not attempted"]
    assert "NameError: x" in found[exercises[0].id].reason
