"""Grade a few submissions as whoever runs this file; print verdicts as JSON.

``python grade_as_user.py FOLDER namespaces|none``; run by test_workshop_user.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import handed_in as work  # it lies beside this file

from turbo_lab.workshop.grade import grade_all
from turbo_lab.workshop.isolation import Isolation, probe, trouble_with_user

SUBMISSIONS = {
    "a-forks": (work.FORK_BOMB, work.ALSO_RIGHT),
    "b-threads": (work.THREAD_BOMB, work.ALSO_RIGHT),
    "c-memory": (work.MEMORY_BOMB, work.ALSO_RIGHT),
    "d-reader": (work.telling("00.2", f"open({work.__file__!r}).read()"),),
    "z-honest": (work.RIGHT, work.ALSO_RIGHT),
}


def main() -> None:
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    told = "taken away for this test"
    none = Isolation(network=told, files=told, processes=told, user=trouble_with_user())
    for student, cells in SUBMISSIONS.items():
        work.hand_in(folder / "in", student, *cells)
    results = grade_all(
        folder / "in", out=folder / "r.json", limits=work.SMALL, report=lambda _: None,
        isolation=probe() if kind == "namespaces" else none,
    )  # fmt: skip
    facts = {"uid": os.geteuid(), "lines": results.isolation, "statuses": work.statuses(results)}
    facts["reasons"] = {f"{r.student} {r.exercise}": r.reason for r in results.rows}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
