"""The collective really runs on its core and ends with its parent; numbers, not speeds."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.core.processes import process_token
from turbo_lab.turbo import cores
from turbo_lab.turbo.cores import core_loss, slowdowns, stolen_cores


def needs_two_cores() -> None:
    try:
        cores.two_cores()
    except UnmeasuredError as error:
        pytest.skip(str(error))


def test_the_loss_of_cores_alone() -> None:
    assert core_loss(2, taken=1) == 2.0
    assert core_loss(108, taken=30) == pytest.approx(1.385, abs=1e-3)
    with pytest.raises(UsageError, match="some must be left"):
        core_loss(2, taken=2)


def test_every_arm_is_measured_in_turns() -> None:
    needs_two_cores()
    rows = stolen_cores(shares=(0.0, 1.0), side=64, products=2, repeats=1)
    assert [(r["kind"], r["share"]) for r in rows] == [
        ("shared", 0.0), ("shared", 1.0), ("given", 1.0), ("alone", 0.0),
    ]  # fmt: skip
    assert all(len(r["samples_s"]) == 1 and r["seconds"] > 0 for r in rows)
    assert slowdowns(rows)["shared", 0.0] == 1.0
    with pytest.raises(UsageError, match="allowed: 0 to 1"):
        stolen_cores(shares=(1.5,))


def test_a_collective_uses_its_share_and_ends_with_its_parent() -> None:
    needs_two_cores()
    code = (
        "import sys, time\n"
        "from turbo_lab.turbo import cores\n"
        "with cores._collective(1.0, cpu=cores.two_cores()[1]):\n"
        "    import psutil\n"
        "    print(psutil.Process().children()[0].pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline().split()[0])
    assert process_token(child)
    parent.kill()
    parent.wait(60)
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while process_token(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process_token(child) is None
