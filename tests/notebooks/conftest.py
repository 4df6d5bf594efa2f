"""The whole course executed once in replay mode, with its memory watched."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from turbo_lab.core import host
from turbo_lab.course.rundir import RunFolder, RunSummary, read_summary


@dataclass(frozen=True)
class WatchedRun:
    """A finished ``turbo-lab run``: its folder, summary and the most memory it took."""

    folder: RunFolder
    summary: RunSummary
    exit_code: int
    output: str
    peak_bytes: int


def _tree_bytes(pid: int) -> int:
    """Resident bytes of a process and all its descendants."""
    try:
        root = psutil.Process(pid)
        return sum(p.memory_info().rss for p in [root, *root.children(recursive=True)])
    except psutil.Error:
        return 0


def watched_run(out: Path, *arguments: str) -> WatchedRun:
    """Run the command in a process of its own, sampling its memory every 50 ms."""
    command = [sys.executable, "-m", "turbo_lab.cli.main", "run", *arguments, "--out", str(out)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        cwd=host.repository_root(), env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    peaks = [0]

    def watch() -> None:
        while process.poll() is None:
            peaks[0] = max(peaks[0], _tree_bytes(process.pid))
            time.sleep(0.05)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    output, _ = process.communicate()
    watcher.join()
    folder = RunFolder(out)
    return WatchedRun(folder, read_summary(folder), process.returncode, output, peaks[0])


@pytest.fixture(scope="session")
def replay_run(tmp_path_factory: pytest.TempPathFactory) -> WatchedRun:
    """All notebooks in replay mode, in whatever environment runs the tests."""
    out = tmp_path_factory.mktemp("replay") / "run"
    return watched_run(out, "--mode", "replay", "--keep-going")


@pytest.fixture(scope="session")
def run_watched():
    """The function above (tests are not importable from each other)."""
    return watched_run
