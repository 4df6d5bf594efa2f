from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest

from turbo_lab.core.errors import ConfigError, RecordError, TurboLabError, UsageError
from turbo_lab.course import rundir
from turbo_lab.course.runner import RunOptions, resume_course, run_course


@pytest.fixture
def go(make_course, tmp_path):
    """Run a small course of these notebooks in replay mode."""

    def run(*books, **options):
        options = {"mode": "replay", "out": tmp_path / "out", **options}
        return run_course(make_course(*books), options=RunOptions(**options))

    return run


def outputs(folder, name):
    book = nbformat.read(folder.notebooks / name, as_version=4)
    return [out.get("text", "") for cell in book.cells for out in cell.get("outputs", [])]


def test_a_run_leaves_notebooks_pages_index_and_summary(go, notebook_of):
    code = "import os\nprint(mode, effort, size, os.path.isdir(os.environ['TURBO_LAB_RUN_DIR']))"
    summary, folder = go(notebook_of(code), parameters={"size": 5}, effort="smoke")
    assert (summary.status, summary.exit_code) == ("passed", 0)
    assert outputs(folder, "00_lesson.ipynb") == ["replay smoke 5 True\n"]
    data = json.loads(folder.summary.read_text(encoding="utf-8"))
    assert data["notebooks"][0]["status"] == "passed" and data["notebooks"][0]["seconds"] > 0
    assert data["notebooks"][0]["predictions_total"] is None  # it stored no prediction
    assert data["machine"]["cores"] >= 1 and data["mode"] == "replay"
    page = (folder.path / data["notebooks"][0]["html"]).read_text(encoding="utf-8")
    index = folder.index.read_text(encoding="utf-8")
    assert "replay smoke 5 True" in page and "html/00_lesson.html" in index
    for text in (page, index):
        assert "<script" not in text and "http://" not in text and "https://" not in text
        assert "prefers-color-scheme: dark" in text and "width=device-width" in text


def test_failure_keeps_the_partial_notebook_and_stops_there(go, notebook_of):
    bad = notebook_of("print('before')", "raise ValueError('no <good>')", "print('after')")
    summary, folder = go(bad, notebook_of("1"))
    assert (summary.status, summary.exit_code) == ("failed", 1)
    first, second = summary.notebooks
    assert (first.status, second.status) == ("failed", "not run")
    assert (first.error.name, first.error.message, first.error.cell) == (
        "ValueError",
        "no <good>",
        4,  # the injected parameters are a cell too
    )
    assert first.notebook == "notebooks/00_lesson.partial.ipynb"
    texts = outputs(folder, "00_lesson.partial.ipynb")
    assert "before\n" in texts and "after\n" not in texts
    index = folder.index.read_text(encoding="utf-8")
    assert "ValueError: no &lt;good&gt;" in index
    assert not (folder.notebooks / "00_lesson.ipynb").exists()


def test_keep_going_runs_the_rest_and_still_fails(go, notebook_of):
    summary, _ = go(notebook_of("1/0"), notebook_of("1"), keep_going=True)
    assert [row.status for row in summary.notebooks] == ["failed", "passed"]
    assert summary.exit_code == 1


def test_resume_starts_at_the_failed_notebook(go, make_course, notebook_of, tmp_path):
    flag = tmp_path / "flag"
    count = f"open({str(tmp_path / 'count')!r}, 'a').write('x')"
    needs_flag = f"assert __import__('pathlib').Path({str(flag)!r}).exists()"
    books = (notebook_of(count), notebook_of(needs_flag), notebook_of("print(size)"))
    summary, folder = go(*books, parameters={"size": 9})
    assert [row.status for row in summary.notebooks] == ["passed", "failed", "not run"]
    flag.touch()
    summary, again = resume_course(make_course(*books), path=folder.path)
    assert summary.status == "passed" and again.path == folder.path
    assert (tmp_path / "count").read_text() == "x"  # the passed one was not executed again
    assert outputs(folder, "02_lesson.ipynb") == ["9\n"]
    assert not list(folder.notebooks.glob("*.partial.ipynb"))


def test_resume_executes_a_passed_notebook_again_when_its_source_changed(
    go, make_course, notebook_of
):
    _, folder = go(notebook_of("print('old')"))
    summary, _ = resume_course(make_course(notebook_of("print('new')")), path=folder.path)
    assert summary.status == "passed"
    assert outputs(folder, "00_lesson.ipynb") == ["new\n"]


def test_resume_without_a_run_or_with_a_damaged_summary(make_course, notebook_of, tmp_path):
    course = make_course(notebook_of())
    with pytest.raises(UsageError, match="no run to continue"):
        resume_course(course, path=tmp_path)
    (tmp_path / "summary.json").write_text('{"schema": 1, "notebooks": [', encoding="utf-8")
    with pytest.raises(RecordError, match="damaged"):
        resume_course(course, path=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parameters": {"sise": 1}}, "Did you mean 'size'"),
        ({"parameters": {"size": "big"}}, "declares size: int"),
        ({"parameters": {"mode": "cpu"}}, "--mode"),
        ({"mode": "rplay"}, "Did you mean 'replay'"),
        ({"effort": "fast"}, "Allowed: full, quick, smoke"),
        ({"notebooks": ("05",)}, "no notebook '05'"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_written(
    go, notebook_of, tmp_path, options, message
):
    with pytest.raises(UsageError, match=message):
        go(notebook_of("1"), **options)
    assert not (tmp_path / "out").exists()


def test_a_parameter_unknown_to_the_second_notebook_stops_before_the_first(
    go, notebook_of, tmp_path
):
    with pytest.raises(UsageError, match=r"01_lesson.ipynb has no parameter 'size'"):
        other = 'mode: str = "auto"\neffort: str = "quick"'
        go(notebook_of("1"), notebook_of("1", parameters=other), parameters={"size": 2})
    assert not (tmp_path / "out").exists()


def test_a_notebook_file_cut_off_is_refused(make_course, notebook_of, tmp_path):
    course = make_course(notebook_of("1"))
    path = course.folder / "00_lesson.ipynb"
    path.write_text(path.read_text(encoding="utf-8")[:200], encoding="utf-8")
    with pytest.raises(ConfigError, match="not a valid notebook"):
        run_course(course, options=RunOptions(mode="replay", out=tmp_path / "out"))


def test_an_output_folder_in_use_or_unwritable_is_refused(go, notebook_of, tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with pytest.raises(UsageError, match="not empty"):
        go(notebook_of("1"), out=tmp_path / "used")
    with pytest.raises(TurboLabError, match="Cannot write to"):
        go(notebook_of("1"), out=tmp_path / "used" / "file" / "below")


def test_little_free_space_is_refused(go, notebook_of, monkeypatch):
    usage = type("Usage", (), {"free": 1024})
    monkeypatch.setattr(rundir.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(TurboLabError, match=r"Only 1\.00 KiB are free"):
        go(notebook_of("1"))


def test_disk_full_during_a_run_is_one_clear_error(go, notebook_of, monkeypatch, tmp_path):
    import errno

    from papermill import engines

    def full(notebook, path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(engines, "write_ipynb", full)
    with pytest.raises(TurboLabError, match=r"No space left for .*--resume"):
        go(notebook_of("1"))
    status = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))["status"]
    assert status == "running"  # nothing half-written passes for whole


def test_a_dead_kernel_is_a_failure_with_a_reason(go, notebook_of):
    summary, _ = go(notebook_of("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    (row,) = summary.notebooks
    assert row.status == "failed" and "memory" in row.error.message


def test_explicit_mode_wins_over_the_environment(go, notebook_of, monkeypatch):
    monkeypatch.setenv("TURBO_LAB_MODE", "cpu")
    monkeypatch.setenv("TURBO_LAB_EFFORT", "full")
    code = "import os\nprint(mode, effort, 'TURBO_LAB_MODE' in os.environ)"
    _, folder = go(notebook_of(code), effort="smoke")
    assert outputs(folder, "00_lesson.ipynb") == ["replay smoke False\n"]
    assert os.environ["TURBO_LAB_MODE"] == "cpu"


SCRIPT = """
import sys
from pathlib import Path
from turbo_lab.course.manifest import load_manifest
from turbo_lab.course.runner import RunOptions, run_course
options = RunOptions(mode="replay", out=Path(sys.argv[2]))
summary, _ = run_course(load_manifest(Path(sys.argv[1])), options=options)
sys.exit(summary.exit_code)
"""

SLEEPER = """import os, pathlib, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
pathlib.Path({path!r}).write_text(f"{{os.getpid()}} {{child.pid}}")
{body}"""

POLITE = """try:
    time.sleep(600)
finally:
    print("cleaned up")"""

STUBBORN = """import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
time.sleep(600)"""


@pytest.fixture
def started(make_course, notebook_of, tmp_path):
    """Start a run in a process of its own; yields (process, pids of kernel and its child)."""
    running: list[subprocess.Popen] = []

    def start(body: str):
        pids = tmp_path / "pids"
        course = make_course(
            notebook_of(SLEEPER.format(path=str(pids), body=body), "print('never')"),
            notebook_of("1"),
        )
        command = [sys.executable, "-c", SCRIPT, str(course.folder), str(tmp_path / "out")]
        process = subprocess.Popen(command, start_new_session=True)
        running.append(process)
        deadline = time.monotonic() + 120
        while not (pids.exists() and len(pids.read_text().split()) == 2):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        return process, [int(pid) for pid in pids.read_text().split()]

    yield start
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def gone(pids: list[int], within_s: float = 60) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        alive = [p for p in pids if psutil.pid_exists(p)]
        if all(psutil.Process(p).status() == psutil.STATUS_ZOMBIE for p in alive):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_kernel_and_keeps_the_partial_notebook(started, tmp_path, number):
    process, pids = started(POLITE)
    process.send_signal(number)
    assert process.wait(timeout=60) == 130
    assert gone(pids)
    folder = rundir.RunFolder(tmp_path / "out")
    summary = rundir.read_summary(folder)
    assert summary.status == "interrupted"
    assert [row.status for row in summary.notebooks] == ["interrupted", "not run"]
    texts = outputs(folder, "00_lesson.partial.ipynb")
    assert "cleaned up\n" in texts and "never\n" not in texts
    assert folder.index.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_second_ctrl_c_kills_a_kernel_that_does_not_listen(started, tmp_path):
    process, pids = started(STUBBORN)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert gone(pids)
    assert rundir.read_summary(rundir.RunFolder(tmp_path / "out")).status == "interrupted"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_killed_runner_leaves_no_kernel_and_no_false_success(started, tmp_path):
    process, pids = started(POLITE)
    process.kill()
    process.wait(timeout=60)
    assert gone(pids[:1], within_s=60)
    os.kill(pids[1], signal.SIGKILL) if psutil.pid_exists(pids[1]) else None
    folder = rundir.RunFolder(tmp_path / "out")
    assert rundir.read_summary(folder).status == "running"
    assert not (Path(folder.notebooks) / "00_lesson.ipynb").exists()
