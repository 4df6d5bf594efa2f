"""What a test that is tried again judges: a measurement of its own try, not the spoiled one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"
TESTS = """
import pytest

made = []


def measure():
    made.append("one")
    return len(made)


def test_the_first_measures(measured_once):
    assert measured_once(measure) == 1


@pytest.mark.engine
def test_the_second_fails_on_what_was_measured_and_measures_again(measured_once):
    assert measured_once(measure) == measured_once(measure) == 2


def test_the_third_takes_the_newest(measured_once):
    assert measured_once(measure) == 2


@pytest.mark.engine
def test_whoever_fails_later_measures_again_too(measured_once):
    assert measured_once(measure) == 3


def test_without_a_mark_there_is_one_try(measured_once):
    assert measured_once(measure) == 4
"""


def test_a_second_try_has_its_own_measurement(tmp_path: Path) -> None:
    source = CONFTEST.read_text()
    quick = source.replace("REPEATS, PAUSE_S = 2, 3", "REPEATS, PAUSE_S = 2, 0")
    assert quick != source
    (tmp_path / "conftest.py").write_text(quick)
    (tmp_path / "test_tries.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert "1 failed, 4 passed" in done.stdout and "2 rerun" in done.stdout, done.stdout
    assert "FAILED test_tries.py::test_without_a_mark_there_is_one_try" in done.stdout
