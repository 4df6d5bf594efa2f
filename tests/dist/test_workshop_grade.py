"""The grader against real processes: honest work, broken work, and attacks on the grader."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from turbo_lab.core import units
from turbo_lab.core.host import repository_root
from turbo_lab.workshop import grade as grading
from turbo_lab.workshop.grade import grade_all
from turbo_lab.workshop.isolation import Isolation, probe
from turbo_lab.workshop.limits import Limits
from turbo_lab.workshop.results import Results
from turbo_lab.workshop.stage import Guard, fingerprint

from . import handed_in as work

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux"),
    pytest.mark.alone,  # it counts processes and waits for limits
]
LIMITS = Limits(
    memory_bytes=600 * units.MiB, processes=24, output_bytes=2 * units.MiB, disk_bytes=units.MiB
)


def statuses(results: Results) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for row in results.rows:
        found.setdefault(row.student, {})[row.exercise] = row.status
    return found


def reason(results: Results, student: str, exercise: str = "00.1") -> str:
    rows = {(r.student, r.exercise): r.reason for r in results.rows}
    return rows[student, exercise]


@pytest.fixture(scope="module")
def isolation() -> Isolation:
    return probe()


@pytest.fixture(scope="module")
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture(scope="module")
def graded(
    tmp_path_factory: pytest.TempPathFactory, isolation: Isolation, listener: int
) -> tuple[Results, Path, set[int]]:
    """Everybody graded in one go: one broken submission must not touch the next."""
    root, out = tmp_path_factory.mktemp("submitted"), tmp_path_factory.mktemp("out") / "r.json"
    own = repository_root() / "turbo_lab" / "course" / "grading.py"
    also = work.ALSO_RIGHT
    for student, cells in {
        "a-honest": (work.RIGHT, also),
        "b-editor": (work.EDITS_THE_GRADER, 'check("00.1", lambda *args: 0)', also),
        "b-replacer": (work.REPLACES_CHECK, 'check("00.1", lambda *args: 0)', also),
        "c-forger": (work.FORGES_REPLIES, 'check("00.1", lambda *args: 0)', also),
        "d-memory": (work.MEMORY_BOMB, also),
        "e-forks": (work.FORK_BOMB, also),
        "f-loud": (work.LOUD, also),
        "g-homeless": (work.NO_FOLDER, work.RIGHT, also),
        "h-leaver": (work.LEAVES, also),
        "i-twins": (work.TWINS, work.RIGHT, also),
        "j-killer": (work.KILLS_PARENT, work.RIGHT, also),
        "k-reader": (
            work.telling(
                "00.1", f'__import__("socket").create_connection(("127.0.0.1", {listener}), 5)'
            ),
            work.telling("00.2", f"open({str(own)!r}, 'a').close()"),
            work.telling("00.3", f"open({str(own.parent / 'checks/nb00.py')!r}).read()"),
            work.telling("00.4", "import turbo_lab.course.solutions.nb00"),
            "try:\n    import turbo_lab.course.checks.nb00 as found\n"
            'except ModuleNotFoundError:\n    found = None\ncheck("00.5", str(found))',
        ),
        "l-filler": (work.telling("00.1", 'open("big", "wb").write(b"x" * 2**22)'),),
        "p-children": (work.MEMORY_BY_CHILDREN, also),
        "z-honest": (work.RIGHT, also),
    }.items():
        work.hand_in(root, student, *cells)
    (root / "r-empty").mkdir()
    (root / "s-garbage").mkdir()
    (root / "s-garbage" / work.NAME).write_text("{not json")
    work.hand_in(root, "t-other", work.RIGHT, name="shopping_list.ipynb")
    (root / "u-link").mkdir()
    (root / "u-link" / work.NAME).symlink_to("/dev/zero")
    work.hand_in(root, "v-twice", work.RIGHT)
    work.hand_in(root, "v-twice", work.RIGHT, name="00_start_here_copy.ipynb")
    before = {p.pid for p in psutil.process_iter()}
    results = grade_all(
        root, out=out, limits=LIMITS, isolation=isolation, report=lambda _: None
    )  # fmt: skip
    return results, out, before


def test_honest_work_passes_first_and_last(graded: tuple[Results, Path, set[int]]) -> None:
    found = statuses(graded[0])
    for student in ("a-honest", "z-honest", "g-homeless", "i-twins"):
        assert found[student]["00.1"] == found[student]["00.4"] == "passed", student
        assert found[student]["00.2"] == "not attempted"


@pytest.mark.parametrize("student", ["b-editor", "b-replacer", "c-forger"])
def test_who_edits_the_grader_or_forges_replies_gains_nothing(
    graded: tuple[Results, Path, set[int]], student: str
) -> None:
    found = statuses(graded[0])[student]
    assert "passed" not in {v for key, v in found.items() if key != "00.4"}


def test_what_the_editor_wrote_stays_with_him(graded: tuple[Results, Path, set[int]]) -> None:
    """The next one passes, and the files of the grader are what they were."""
    assert statuses(graded[0])["b-editor"]["00.4"] == "passed"
    for name in ("grading.py", "exercises.py"):
        text = (repository_root() / "turbo_lab" / "course" / name).read_text()
        assert "# edited" not in text


@pytest.mark.parametrize(
    ("student", "status"),
    [("d-memory", "memory"), ("e-forks", "processes"), ("f-loud", "output"),
     ("h-leaver", "crashed"), ("p-children", "memory")],
)  # fmt: skip
def test_limits_end_the_cell_and_the_rest_is_graded(
    graded: tuple[Results, Path, set[int]], student: str, status: str
) -> None:
    found = statuses(graded[0])[student]
    assert found["00.1"] == status
    assert found["00.4"] == "passed"


def test_the_killer_of_parents_harms_himself_at_most(
    graded: tuple[Results, Path, set[int]], isolation: Isolation
) -> None:
    found = statuses(graded[0])["j-killer"]
    if isolation.processes is None:  # the first process of a namespace cannot be killed from inside
        assert found["00.1"] == found["00.4"] == "passed"


def test_no_network_no_writing_no_reading(
    graded: tuple[Results, Path, set[int]], isolation: Isolation
) -> None:
    results = graded[0]
    if isolation.network is None:
        assert "refused" in reason(results, "k-reader", "00.1")
        assert results.isolation[0] == "network: none"
    else:
        assert results.isolation[0] == f"network not limited: {isolation.network}"
    if isolation.files is None:
        assert "refused" in reason(results, "k-reader", "00.2")
        assert "refused FileNotFoundError" in reason(results, "k-reader", "00.3")
        assert "refused" in reason(results, "l-filler")


def test_solutions_and_cases_are_not_in_the_package_it_imports(
    graded: tuple[Results, Path, set[int]],
) -> None:
    assert "refused ModuleNotFoundError" in reason(graded[0], "k-reader", "00.4")
    assert reason(graded[0], "k-reader", "00.5").startswith("'None' is not it")


@pytest.mark.parametrize(
    ("student", "status", "said"),
    [("r-empty", "missing", "no such notebook"), ("s-garbage", "unreadable", "cannot be read"),
     ("t-other", "missing", "no such notebook"), ("u-link", "unreadable", "link"),
     ("v-twice", "unreadable", "2 files")],
)  # fmt: skip
def test_what_cannot_be_graded_is_told(
    graded: tuple[Results, Path, set[int]], student: str, status: str, said: str
) -> None:
    assert set(statuses(graded[0])[student].values()) == {status}
    assert said in reason(graded[0], student)


def test_no_process_is_left(graded: tuple[Results, Path, set[int]]) -> None:
    marks = ("turbo_lab.workshop.worker", "cage.py")
    left = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if process.pid not in graded[2] and any(mark in line for mark in marks):
            left.append(line)
    assert not left


def test_results_are_written(graded: tuple[Results, Path, set[int]]) -> None:
    results, out, _ = graded
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == len(results.rows) == 20 * 5
    assert out.with_suffix(".csv").read_text().count("\n") == len(rows) + 1


def test_an_endless_loop_costs_one_exercise(tmp_path: Path, isolation: Isolation) -> None:
    root, out = tmp_path / "in", tmp_path / "r.json"
    work.hand_in(root, "a-cell", work.ENDLESS, work.ALSO_RIGHT)
    work.hand_in(root, "b-answer", work.ENDLESS_ANSWER, work.ALSO_RIGHT)
    work.hand_in(root, "c-stubborn", work.STUBBORN, work.ALSO_RIGHT)
    limits = Limits(step_s=3.0, wall_s=120.0)
    lines: list[str] = []
    results = grade_all(root, out=out, limits=limits, isolation=isolation, report=lines.append)
    for student, found in statuses(results).items():
        assert (found["00.1"], found["00.4"]) == ("timeout", "passed"), student
        assert "3 s" in reason(results, student)
    again: list[str] = []
    kept = grade_all(
        root, out=out, limits=limits, isolation=isolation, resume=True, report=again.append
    )
    assert kept.rows == results.rows
    assert [line for line in again if line.startswith(("a-", "b-", "c-"))] == [
        "a-cell/00: kept", "b-answer/00: kept", "c-stubborn/00: kept"
    ]  # fmt: skip


def test_processor_time_is_limited(tmp_path: Path, isolation: Isolation) -> None:
    work.hand_in(tmp_path / "in", "a", work.ENDLESS)
    results = grade_all(
        tmp_path / "in", out=tmp_path / "r.json", limits=Limits(cpu_s=3.0), isolation=isolation,
        report=lambda _: None,
    )  # fmt: skip
    assert statuses(results)["a"]["00.1"] == "timeout"
    assert "processor time" in reason(results, "a")


def test_the_whole_notebook_is_limited_too(tmp_path: Path, isolation: Isolation) -> None:
    work.hand_in(tmp_path / "in", "a", *[work.ENDLESS] * 5)
    results = grade_all(
        tmp_path / "in", out=tmp_path / "r.json", limits=Limits(wall_s=3.0), isolation=isolation,
        report=lambda _: None,
    )  # fmt: skip
    assert statuses(results)["a"]["00.1"] == "timeout"
    assert "3 s are used up" in reason(results, "a")


def test_without_namespaces_limits_hold_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "in"
    work.hand_in(root, "a-forks", work.FORK_BOMB, work.ALSO_RIGHT)
    work.hand_in(root, "b-memory", work.MEMORY_BOMB, work.ALSO_RIGHT)
    work.hand_in(root, "c-honest", work.RIGHT)
    quiet_tree = tmp_path / "checkout"
    (quiet_tree / "turbo_lab").mkdir(parents=True)
    monkeypatch.setattr(grading, "Guard", lambda stage: Guard(stage, root=quiet_tree))
    none = Isolation(network="forbidden here", files="forbidden here", processes="forbidden here")
    before = {p.pid for p in psutil.process_iter()}
    results = grade_all(
        root, out=tmp_path / "r.json", limits=LIMITS, isolation=none, report=lambda _: None
    )
    found = statuses(results)
    assert found["a-forks"]["00.1"] == "processes" and found["a-forks"]["00.4"] == "passed"
    assert found["b-memory"]["00.1"] == "memory" and found["c-honest"]["00.1"] == "passed"
    assert "network not limited: forbidden here" in results.isolation
    mine = [
        p.pid for p in psutil.process_iter(["cmdline"])
        if p.pid not in before and "turbo_lab.workshop.worker" in " ".join(p.info["cmdline"] or ())
    ]  # fmt: skip
    assert not mine


def test_grading_stops_when_files_of_the_grader_changed(tmp_path: Path) -> None:
    package, stage = tmp_path / "turbo_lab", tmp_path / "stage"
    for folder in (package, stage):
        folder.mkdir()
        (folder / "a.py").write_text("1")
    guard = Guard(stage, root=tmp_path)
    guard.check("ada")
    seen = fingerprint(package)
    facts = (package / "a.py").stat()
    (package / "a.py").write_text("2")
    os.utime(package / "a.py", ns=(facts.st_atime_ns, facts.st_mtime_ns))  # hides nothing
    assert fingerprint(package) != seen
    with pytest.raises(Exception, match="submission of 'eve'"):
        guard.check("eve")
