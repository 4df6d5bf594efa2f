"""Grade a folder of submissions: each notebook in a process of its own, each verdict made here."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from turbo_lab.core.errors import RecordError, UsageError
from turbo_lab.course import checks
from turbo_lab.course.exercises import list_exercises
from turbo_lab.course.grading import Exercise
from turbo_lab.workshop import cage
from turbo_lab.workshop.isolation import Isolation, probe
from turbo_lab.workshop.judge import Verdict, judge_notebook
from turbo_lab.workshop.limits import Limits
from turbo_lab.workshop.remote import Place, caged
from turbo_lab.workshop.results import Results, Row, read_results, write_results
from turbo_lab.workshop.stage import Guard, build_stage, hidden_folders
from turbo_lab.workshop.submissions import Submission, find_submissions, read_cells

Report = Callable[[str], None]


@dataclass(frozen=True)
class Grading:
    """What all notebooks of one grading share."""

    root: Path
    stage: Path
    isolation: Isolation
    limits: Limits

    def digest(self, number: str, paths: tuple[Path, ...]) -> str:
        """Digest of everything that a verdict depends on: files, limits, isolation, cases."""
        found = hashlib.sha256(json.dumps([self.limits.to_json(), self.isolation.lines()]).encode())
        for path in (Path(checks.__path__[0]) / f"nb{number}.py", *paths):
            with contextlib.suppress(OSError):
                found.update(path.read_bytes() if path.is_file() else b"")
        return found.hexdigest()


def grade_all(
    root: Path,
    *,
    out: Path,
    notebooks: Sequence[str] = (),
    limits: Limits | None = None,
    isolation: Isolation | None = None,
    resume: bool = False,
    report: Report = print,
) -> Results:
    """Grade every student's folder below ``root`` and write ``out`` after each notebook.

    Args:
        root: One folder per student.
        out: The results' JSON file (``results.check_target``); the CSV file lies beside it.
        notebooks: Numbers that are expected; none means all that any student handed in.
        limits: What a submission may use.
        isolation: How submissions are started; None is the strongest that works here.
        resume: Keep verdicts of notebooks whose files, limits and cases are the same.
        report: Called with one line per notebook.

    Raises UsageError for a wrong call, TurboLabError when files of the grader were changed.
    """
    submissions = find_submissions(root)
    expected = expected_notebooks(submissions, notebooks)
    limits, isolation = limits or Limits(), isolation or probe()
    earlier = read_results(out) if resume and out.exists() else None
    results = Results(isolation.lines(), limits.to_json())
    if earlier is not None:
        results.rows, results.done = earlier.rows, earlier.done
    for line in results.isolation:
        report(line)
    with tempfile.TemporaryDirectory(prefix="turbo-lab-stage-") as folder, _unreadable():
        grading = Grading(root.resolve(), build_stage(Path(folder)), isolation, limits)
        guard = Guard(grading.stage) if isolation.files else None  # else nothing could be changed
        for submission, number in ((s, n) for s in submissions for n in expected):
            _grade_into(results, grading, submission, number, report)
            write_results(results, out)
            if guard is not None:
                guard.check(submission.student)
    return results


def expected_notebooks(
    submissions: Sequence[Submission], wanted: Sequence[str] = ()
) -> dict[str, tuple[Exercise, ...]]:
    """Numbers of the notebooks to grade, with their exercises.

    Raises UsageError for a wanted notebook without exercises, and when nothing can be graded.
    """
    numbers = {f"{w:0>2}" for w in wanted} or {n for s in submissions for n in s.notebooks}
    found = {}
    for number in sorted(numbers):
        try:
            found[number] = list_exercises(number)
        except UsageError:
            if wanted:
                raise
    if not found:
        raise UsageError(
            "No folder holds a notebook of the course (NN_name.ipynb). Name those you expect: "
            "--notebook 03"
        )
    return found


def _grade_into(
    results: Results, grading: Grading, submission: Submission, number: str, report: Report
) -> None:
    """Grade one notebook unless its verdict is there already."""
    exercises = list_exercises(number)
    paths = submission.notebooks.get(number, ())
    digest = grading.digest(number, paths)
    name = f"{submission.student}/{number}"
    if results.done.get(name) == digest:
        report(f"{name}: kept")
        return
    begin_s = time.monotonic()
    verdicts = _verdicts(grading, paths, exercises)
    spent_s = round(time.monotonic() - begin_s, 3) if paths else None
    rows = [
        Row(submission.student, number, key, v.status, v.reason, spent_s)
        for key, v in verdicts.items()
    ]
    results.replace(submission.student, number, rows, digest)
    passed = sum(row.status == "passed" for row in rows)
    report(f"{name}: {passed} of {len(rows)} passed" + (f", {spent_s:.1f} s" if paths else ""))


def _verdicts(
    grading: Grading, paths: tuple[Path, ...], exercises: Sequence[Exercise]
) -> dict[str, Verdict]:
    if not paths:
        missing = Verdict("missing", "no such notebook was handed in")
        return {one.id: missing for one in exercises}
    try:
        cells = read_cells(paths)
    except RecordError as error:
        return {one.id: Verdict("unreadable", str(error)) for one in exercises}
    with tempfile.TemporaryDirectory(
        prefix="turbo-lab-work-", ignore_cleanup_errors=True
    ) as folder:
        place = Place(Path(folder), grading.stage, hide=(*hidden_folders(), grading.root))
        start = caged(place, isolation=grading.isolation, limits=grading.limits)
        return judge_notebook(cells, exercises, start=start, wall_s=grading.limits.wall_s)


@contextlib.contextmanager
def _unreadable() -> Iterator[None]:
    """No process of the same user may read or write this one's memory, where the cases lie."""
    libc, pr_get_dumpable = ctypes.CDLL(None), 3
    before = libc.prctl(pr_get_dumpable, 0, 0, 0, 0)
    libc.prctl(cage.PR_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(cage.PR_SET_DUMPABLE, before, 0, 0, 0)
