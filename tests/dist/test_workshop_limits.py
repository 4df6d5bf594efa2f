"""Limits of time, machines without namespaces, and a grader that is killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from turbo_lab.workshop import grade as grading
from turbo_lab.workshop.grade import grade_all
from turbo_lab.workshop.isolation import Isolation, probe
from turbo_lab.workshop.limits import Limits
from turbo_lab.workshop.stage import Guard, fingerprint

from ..waiting import wait_until
from . import handed_in as work

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux"),
    pytest.mark.alone,  # it counts processes and waits for limits
]


@pytest.fixture(scope="module")
def isolation() -> Isolation:
    return probe()


def test_an_endless_loop_costs_one_exercise(tmp_path: Path, isolation: Isolation) -> None:
    root, out = tmp_path / "in", tmp_path / "r.json"
    work.hand_in(root, "a-cell", work.ENDLESS, work.ALSO_RIGHT)
    work.hand_in(root, "b-answer", work.ENDLESS_ANSWER, work.ALSO_RIGHT)
    work.hand_in(root, "c-stubborn", work.STUBBORN, work.ALSO_RIGHT)
    limits = Limits(step_s=3.0, wall_s=120.0)
    lines: list[str] = []
    results = grade_all(root, out=out, limits=limits, isolation=isolation, report=lines.append)
    for student, found in work.statuses(results).items():
        assert (found["00.1"], found["00.4"]) == ("timeout", "passed"), student
        assert "3 s" in work.reason(results, student)
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
    assert work.statuses(results)["a"]["00.1"] == "timeout"
    assert "processor time" in work.reason(results, "a")


def test_the_whole_notebook_is_limited_too(tmp_path: Path, isolation: Isolation) -> None:
    work.hand_in(tmp_path / "in", "a", *[work.ENDLESS] * 5)
    results = grade_all(
        tmp_path / "in", out=tmp_path / "r.json", limits=Limits(wall_s=3.0), isolation=isolation,
        report=lambda _: None,
    )  # fmt: skip
    assert work.statuses(results)["a"]["00.1"] == "timeout"
    assert "3 s are used up" in work.reason(results, "a")


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
        root, out=tmp_path / "r.json", limits=work.SMALL, isolation=none, report=lambda _: None
    )
    found = work.statuses(results)
    assert found["a-forks"]["00.1"] == "processes" and found["a-forks"]["00.4"] == "passed"
    assert found["b-memory"]["00.1"] == "memory" and found["c-honest"]["00.1"] == "passed"
    assert "network not limited: forbidden here" in results.isolation
    mine = [
        p.pid for p in psutil.process_iter(["cmdline"])
        if p.pid not in before and "turbo_lab.workshop.worker" in " ".join(p.info["cmdline"] or ())
    ]  # fmt: skip
    assert not mine


def left_of(marker: Path) -> list[psutil.Process]:
    """Processes of cages and workers that were started below this folder."""
    found = []
    for process in psutil.process_iter():
        told: list[str] = []
        with contextlib.suppress(psutil.Error):
            told += process.cmdline()
        if not any("cage.py" in t or t == "turbo_lab.workshop.worker" for t in told):
            continue
        with contextlib.suppress(psutil.Error):
            told += process.environ().values()
        if str(marker) in " ".join(told):
            found.append(process)
    return found


@pytest.mark.parametrize("namespaces", [True, False])
def test_a_killed_grader_leaves_no_process(tmp_path: Path, namespaces: bool) -> None:
    work.hand_in(tmp_path / "in", "a", work.SLEEPS)
    chosen = "None" if namespaces else "Isolation(network='x', files='x', processes='x')"
    code = (
        "from pathlib import Path\nfrom turbo_lab.workshop.grade import grade_all\n"
        "from turbo_lab.workshop.isolation import Isolation\n"
        f"grade_all(Path({str(tmp_path / 'in')!r}), out=Path({str(tmp_path / 'r.json')!r}), "
        f"isolation={chosen})"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    grader = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL
    )
    try:
        assert wait_until(lambda: left_of(tmp_path)), "no cage was started"
    finally:
        grader.kill()
        grader.wait()
    assert wait_until(lambda: not left_of(tmp_path)), left_of(tmp_path)


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
