"""The grader against real processes: honest work, broken work, and attacks on the grader."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from turbo_lab.core.host import repository_root
from turbo_lab.workshop.grade import grade_all
from turbo_lab.workshop.isolation import Isolation, probe
from turbo_lab.workshop.results import Results

from . import handed_in as work

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux"),
    pytest.mark.alone,  # it counts processes and waits for limits
]


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
        root, out=out, limits=work.SMALL, isolation=isolation, report=lambda _: None
    )  # fmt: skip
    return results, out, before


def test_honest_work_passes_first_and_last(graded: tuple[Results, Path, set[int]]) -> None:
    found = work.statuses(graded[0])
    for student in ("a-honest", "z-honest", "g-homeless", "i-twins"):
        assert found[student]["00.1"] == found[student]["00.4"] == "passed", student
        assert found[student]["00.2"] == "not attempted"


@pytest.mark.parametrize("student", ["b-editor", "b-replacer", "c-forger"])
def test_who_edits_the_grader_or_forges_replies_gains_nothing(
    graded: tuple[Results, Path, set[int]], student: str
) -> None:
    found = work.statuses(graded[0])[student]
    assert "passed" not in {v for key, v in found.items() if key != "00.4"}


def test_what_the_editor_wrote_stays_with_him(graded: tuple[Results, Path, set[int]]) -> None:
    """The next one passes, and the files of the grader are what they were."""
    assert work.statuses(graded[0])["b-editor"]["00.4"] == "passed"
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
    found = work.statuses(graded[0])[student]
    assert found["00.1"] == status
    assert found["00.4"] == "passed"


def test_the_killer_of_parents_harms_himself_at_most(
    graded: tuple[Results, Path, set[int]], isolation: Isolation
) -> None:
    found = work.statuses(graded[0])["j-killer"]
    if isolation.processes is None:  # the first process of a namespace cannot be killed from inside
        assert found["00.1"] == found["00.4"] == "passed"


def test_no_network_no_writing_no_reading(
    graded: tuple[Results, Path, set[int]], isolation: Isolation
) -> None:
    results = graded[0]
    if isolation.network is None:
        assert "refused" in work.reason(results, "k-reader", "00.1")
        assert results.isolation[0] == "network: none"
    else:
        assert results.isolation[0] == f"network not limited: {isolation.network}"
    if isolation.files is None:
        assert "refused" in work.reason(results, "k-reader", "00.2")
        assert "refused FileNotFoundError" in work.reason(results, "k-reader", "00.3")
        assert "refused" in work.reason(results, "l-filler")


def test_solutions_and_cases_are_not_in_the_package_it_imports(
    graded: tuple[Results, Path, set[int]],
) -> None:
    assert "refused ModuleNotFoundError" in work.reason(graded[0], "k-reader", "00.4")
    assert work.reason(graded[0], "k-reader", "00.5").startswith("'None' is not it")


@pytest.mark.parametrize(
    ("student", "status", "said"),
    [("r-empty", "missing", "no such notebook"), ("s-garbage", "unreadable", "cannot be read"),
     ("t-other", "missing", "no such notebook"), ("u-link", "unreadable", "link"),
     ("v-twice", "unreadable", "2 files")],
)  # fmt: skip
def test_what_cannot_be_graded_is_told(
    graded: tuple[Results, Path, set[int]], student: str, status: str, said: str
) -> None:
    assert set(work.statuses(graded[0])[student].values()) == {status}
    assert said in work.reason(graded[0], student)


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
