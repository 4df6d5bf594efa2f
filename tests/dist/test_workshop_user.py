"""The grader as an ordinary user, who should be the one to grade: limits hold, and it is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.workshop.isolation import Isolation, trouble_with_user

from ..waiting import wait_until
from .ordinary_user import as_ordinary_user, why_not
from .test_workshop_limits import left_of

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux"),
    pytest.mark.alone,  # it counts processes and waits for limits
]
SCRIPT = Path(__file__).with_name("grade_as_user.py")


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that another user can be given: pytest's own are closed to all but this one."""
    with tempfile.TemporaryDirectory(prefix="turbo-lab-user-") as folder:
        yield Path(folder)


def graded(scratch: Path, kind: str) -> dict[str, Any]:
    """What ``grade_as_user`` prints. Skips with the reason where there is no other user."""
    with tempfile.TemporaryDirectory(prefix="turbo-lab-user-") as folder:
        if (reason := why_not(Path(folder))) is not None:
            pytest.skip(reason)
    command = as_ordinary_user([sys.executable, str(SCRIPT), str(scratch), kind], scratch=scratch)
    environment = {**os.environ, "TMPDIR": str(scratch), "HOME": str(scratch)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd="/", timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert wait_until(lambda: not left_of(scratch)), left_of(scratch)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["namespaces", "none"])
def test_an_ordinary_user_keeps_all_limits(scratch: Path, kind: str) -> None:
    facts = graded(scratch, kind)
    assert facts["uid"] != 0 and facts["lines"][-1] == "user: an ordinary one"
    for student, status in {"a-forks": "processes", "b-threads": "processes",
                            "c-memory": "memory", "z-honest": "passed"}.items():  # fmt: skip
        found = facts["statuses"][student]
        assert (found["00.1"], found["00.4"]) == (status, "passed"), (student, facts["reasons"])
    if facts["lines"][1].startswith("files: read-only"):
        assert "refused FileNotFoundError" in facts["reasons"]["d-reader 00.2"]
    else:
        assert any(line.startswith("network not limited: ") for line in facts["lines"])


def test_root_is_told_not_to_grade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    line = Isolation(user=trouble_with_user()).lines()[-1]
    assert line.startswith("user not limited: root grades") and "ordinary user" in line
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert Isolation(user=trouble_with_user()).lines()[-1] == "user: an ordinary one"
