"""Submissions for the tests: honest ones, and those that attack the grader."""

from __future__ import annotations

import json
from pathlib import Path

from turbo_lab.core import units
from turbo_lab.workshop.limits import Limits
from turbo_lab.workshop.results import Results

NAME = "00_start_here.ipynb"
RIGHT = """
def request_seconds(ttft_s, tpot_s, output_tokens):
    return ttft_s + tpot_s * (output_tokens - 1)


check("00.1", request_seconds)
"""
ALSO_RIGHT = """
def fits(prompt_tokens, max_tokens, max_model_len):
    return prompt_tokens + max_tokens <= max_model_len


check("00.4", fits)
"""
SETUP = "from turbo_lab.course import check"
SMALL = Limits(
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


def hand_in(root: Path, student: str, *cells: str, name: str = NAME) -> Path:
    """Write a student's notebook with these code cells."""
    path = root / student / name
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"cell_type": "code", "source": source.strip(), "metadata": {}, "outputs": [],
         "execution_count": None, "id": f"c{number}"}
        for number, source in enumerate((SETUP, *cells))
    ]  # fmt: skip
    notebook = {"cells": rows, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook))
    return path


def telling(exercise: str, statement: str) -> str:
    """A cell whose answer raises, so that the reason shows what ``statement`` could do."""
    return f"""
def answer(*args):
    try:
        {statement}
    except BaseException as error:
        raise RuntimeError(f"refused {{type(error).__name__}}")
    raise RuntimeError("it worked")


check("{exercise}", answer)
"""


EDITS_THE_GRADER = """
from turbo_lab.course import exercises, grading

good = grading.Grade("correct")
grading.grade = exercises.grade = lambda *args: good
grading.same = grading._fits = lambda *args, **kwargs: True
for path in (grading.__file__, exercises.__file__):
    try:
        with open(path, "a") as file:
            file.write("\\n# edited\\n")
    except OSError:
        pass
print("00.1: correct")
"""

REPLACES_CHECK = """
from turbo_lab.course import exercises

exercises.check = exercises.require = check = lambda *args: print("00.1: correct")
"""

FORGES_REPLIES = """
import json, os, threading, time

forged = {"answers": {"00.1": {"callable": False, "name": "x"}}, "errors": {}, "value": "19.0",
          "status": "passed", "result": "passed", "verdict": "correct", "correct": True}

def flood():
    for n in range(1, 40):
        for fd in range(3, 16):
            try:
                os.write(fd, (json.dumps({"n": n, **forged}) + "\\n").encode())
            except OSError:
                pass

flood()
print("00.1: correct\\n" * 10)
"""

MEMORY_BOMB = 'hoard = []\nwhile True:\n    hoard.append(bytearray(32 * 2**20))\ncheck("00.1", 1)'
MEMORY_BY_CHILDREN = """
import os, time
for _ in range(10):
    if os.fork() == 0:
        held = bytearray(b"x") * (100 * 2**20)
        time.sleep(60)
time.sleep(60)
check("00.1", 1)
"""
# Two to the power of seven processes: a bomb of bounded size, so that a broken test harms nobody.
FORK_BOMB = """
import os, time
for _ in range(7):
    os.fork()
time.sleep(60)
check("00.1", 1)
"""
THREAD_BOMB = """
import threading, time
threading.stack_size(64 * 1024)
for _ in range(4000):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
check("00.1", 1)
"""
LOUD = 'import sys\nwhile True:\n    sys.stdout.write("x" * 65536)\ncheck("00.1", 1)'
NO_FOLDER = "import os, shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)"
LEAVES = 'import os\nos._exit(0)\ncheck("00.1", 1)'
TWINS = "import os\nos.fork()"
KILLS_PARENT = (
    "import os, signal\ntry:\n    os.kill(os.getppid(), signal.SIGKILL)\nexcept OSError:\n    pass"
)
SLEEPS = 'import time\ntime.sleep(300)\ncheck("00.1", 1)'
ENDLESS = 'while True:\n    pass\ncheck("00.1", 1)'
ENDLESS_ANSWER = 'def answer(*args):\n    while True:\n        pass\n\n\ncheck("00.1", answer)'
STUBBORN = """
import signal, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    try:
        time.sleep(1)
    except BaseException:
        pass
check("00.1", 1)
"""
