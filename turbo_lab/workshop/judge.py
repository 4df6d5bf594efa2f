"""The verdict on one notebook, computed here from what the caged submission answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from turbo_lab.course.grading import Exercise, grade
from turbo_lab.workshop.codec import EncodingError, decode, encode
from turbo_lab.workshop.remote import LostError
from turbo_lab.workshop.submissions import exercises_in

MAX_RESTARTS = 4
REASON_CHARACTERS = 300
# What fork and a thread's start raise when the kernel's limit is reached.
NO_MORE_PROCESSES = ("BlockingIOError: [Errno 11]", "RuntimeError: can't start new thread")
VERDICTS = {"correct": "passed", "wrong": "failed", "not attempted": "not attempted"}


class Asked(Protocol):
    """What answers for a submission: ``remote.Remote``, or a stand-in in tests."""

    cell: int | None

    @property
    def alive(self) -> bool:
        """True while it can be asked."""

    def ask(self, do: str, **content: Any) -> dict[str, Any]:
        """One request, one reply."""

    def __enter__(self) -> Asked: ...

    def __exit__(self, *_: object) -> None: ...


@dataclass(frozen=True)
class Verdict:
    """``status``: passed, failed, not attempted, timeout, memory, processes, output, crashed."""

    status: str
    reason: str = ""


class RemoteAnswer:
    """A function that lives in the submission's process. Calls go there, plain data comes back."""

    def __init__(self, exercise_id: str, name: str, remote: Asked) -> None:
        self._id, self._remote = exercise_id, remote
        self.__name__ = name

    def __call__(self, *args: Any) -> Any:
        """The result; what the answer raised is raised here under the same name."""
        reply = self._remote.ask("call", id=self._id, args=encode(list(args)))
        if "raised" in reply:
            raise _raised(reply["raised"])
        if "args" in reply:
            _write_back(args, decode(reply["args"]))
        return _value(reply)


def _raised(told: Any) -> Exception:
    """An error with the name and text that the answer's own had."""
    parts = [str(part)[:REASON_CHARACTERS] for part in told] if isinstance(told, list) else []
    name, text = (*parts, "Error", "")[:2]
    if (lost := _limit_in(f"{name}: {text}")) is not None:
        raise lost
    return type(name if name.isidentifier() else "Error", (Exception,), {})(text)


def _limit_in(error: str) -> LostError | None:
    """The limit that an error of a submission tells of; None for any other error."""
    if error.startswith("MemoryError"):
        return LostError("memory", "its memory is used up (MemoryError)")
    if error.startswith(NO_MORE_PROCESSES):
        return LostError("processes", f"no more processes or threads for it ({error})")
    return None


def _value(reply: dict[str, Any]) -> Any:
    if "value" in reply:
        return decode(reply["value"])
    raise EncodingError(str(reply.get("odd", "no result came back"))[:REASON_CHARACTERS])


def _write_back(mine: Sequence[Any], theirs: Any) -> None:
    """Changes that the answer made to its arguments are made here: some checks look for them."""
    for one, other in zip(mine, theirs if isinstance(theirs, list) else [], strict=False):
        if isinstance(one, list) and isinstance(other, list):
            one[:] = other
        elif isinstance(one, dict) and isinstance(other, dict):
            one.clear()
            one.update(other)


def judge_notebook(
    cells: Sequence[str],
    exercises: Sequence[Exercise],
    *,
    start: Callable[[float], Asked],
    wall_s: float,
) -> dict[str, Verdict]:
    """Verdicts by exercise id.

    ``start(deadline_s)`` gives a new process of the submission. A cell that ends it is left out in
    the next one, at most ``MAX_RESTARTS`` times, so that one endless loop costs one exercise.
    """
    found: dict[str, Verdict] = {}
    skip: set[int] = set()
    deadline_s = time.monotonic() + wall_s
    last = Verdict("not attempted")
    for _ in range(MAX_RESTARTS + 1):
        open_ones = [one for one in exercises if one.id not in found]
        if not open_ones or (last.status != "not attempted" and time.monotonic() > deadline_s):
            break
        with start(deadline_s) as remote:
            try:
                ended = _judge_open(open_ones, cells, remote=remote, skip=skip, found=found)
                last = ended or last
            except LostError as lost:
                last = Verdict(lost.status, lost.reason[:REASON_CHARACTERS])
                if remote.cell is None:
                    break
                _blame(cells, remote.cell, last, skip=skip, found=found)
    rest = {one.id: last for one in exercises if one.id not in found}
    return {one.id: {**rest, **found}[one.id] for one in exercises}


def _blame(
    cells: Sequence[str],
    cell: int,
    verdict: Verdict,
    *,
    skip: set[int],
    found: dict[str, Verdict],
) -> None:
    """The cell that ended the process is left out from now on; its exercises have their verdict."""
    skip.add(cell)
    for exercise_id in exercises_in(cells[cell]) if 0 <= cell < len(cells) else ():
        found.setdefault(exercise_id, verdict)


def _judge_open(
    exercises: Sequence[Exercise],
    cells: Sequence[str],
    *,
    remote: Asked,
    skip: set[int],
    found: dict[str, Verdict],
) -> Verdict | None:
    """Run the cells, then judge answer after answer. Raises LostError while cells run.

    Returns the verdict on the answer that ended the process, None when all were judged.
    """
    told = remote.ask("run", cells=list(cells), skip=sorted(skip))
    answers = told.get("answers") if isinstance(told.get("answers"), dict) else {}
    errors = told.get("errors") if isinstance(told.get("errors"), dict) else {}
    _without_hoards(errors, remote=remote, skip=skip)
    for exercise in exercises:
        if not isinstance(answers.get(exercise.id), dict):
            found[exercise.id] = _without_answer(exercise.id, cells, errors)
            continue
        try:
            found[exercise.id] = _judge_one(exercise, answers[exercise.id], remote)
        except LostError as lost:
            found[exercise.id] = Verdict(lost.status, lost.reason[:REASON_CHARACTERS])
            if not remote.alive:
                return found[exercise.id]
    return None


def _without_hoards(errors: dict[str, Any], *, remote: Asked, skip: set[int]) -> None:
    """Raise LostError for a cell that used a limit up: what it holds would fail the others."""
    for number, text in errors.items():
        lost = _limit_in(str(text))
        if lost is not None and number.isdigit() and int(number) not in skip:
            remote.cell = int(number)
            raise lost


def _judge_one(exercise: Exercise, told: dict[str, Any], remote: Asked) -> Verdict:
    try:
        if told.get("callable"):
            answer = RemoteAnswer(exercise.id, str(told.get("name", "answer"))[:60], remote)
        else:
            answer = _value(remote.ask("value", id=exercise.id))
        result = grade(exercise, answer)
    except Exception as error:  # a strange answer must not end the grading of the others
        return Verdict("failed", f"could not be judged ({type(error).__name__}: {error})"[:300])
    return Verdict(VERDICTS[result.status], result.message[:REASON_CHARACTERS])


def _without_answer(exercise_id: str, cells: Sequence[str], errors: dict[str, Any]) -> Verdict:
    """Why there is no answer: its cell failed, or nothing hands it in."""
    mine = [n for n, source in enumerate(cells) if exercise_id in exercises_in(source)]
    for number in mine:
        if str(number) in errors:
            return Verdict("failed", f"its cell raised {errors[str(number)]}"[:REASON_CHARACTERS])
    if mine:
        return Verdict("not attempted", "its cell ran, but the course's check was not called")
    return Verdict("not attempted", f'no cell hands it in with check("{exercise_id}", ...)')
