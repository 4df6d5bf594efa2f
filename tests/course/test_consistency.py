"""course.toml, the files, the README and the graded exercises tell the same story."""

from __future__ import annotations

import pytest

from turbo_lab.core import host
from turbo_lab.course.manifest import load_manifest, map_rows

ROOT = host.repository_root()
COURSE = load_manifest()
MINUTES_PROMISED = 45  # on 2 cores at effort=quick; a measured run, see the README
by_id = pytest.mark.parametrize("entry", COURSE.notebooks, ids=lambda entry: entry.id)


def test_every_notebook_is_listed_and_every_listed_one_exists():
    files = sorted(path.name for path in COURSE.folder.glob("*.ipynb"))
    assert files == [entry.file for entry in COURSE.notebooks]


@by_id
def test_a_notebook_has_its_package_folder_checks_and_solutions(entry):
    assert (ROOT / entry.package).is_dir()
    assert entry.checks == f"turbo_lab.course.checks.nb{entry.id}"
    assert host.has_module(entry.checks)
    assert host.has_module(f"turbo_lab.course.solutions.nb{entry.id}")


def test_checks_and_solutions_come_in_pairs():
    checks, solutions = (
        {path.name for path in (ROOT / "turbo_lab/course" / folder).glob("nb*.py")}
        for folder in ("checks", "solutions")
    )
    assert checks == solutions != set()


@by_id
def test_a_ready_notebook_has_a_record_to_replay(entry):
    if entry.status == "ready":
        assert list((ROOT / "data/records" / f"nb{entry.id}").glob("*.json"))


def test_the_readme_map_is_the_one_of_course_toml():
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    missing = [row for row in map_rows(COURSE) if row not in readme]
    assert missing == [], "paste the output of: turbo-lab course map"
    shown = [line for line in readme if "](notebooks/" in line and line.startswith("| ")]
    assert len(shown) == len(COURSE.notebooks)


def test_the_whole_course_fits_the_promised_time():
    assert sum(entry.minutes for entry in COURSE.notebooks) <= MINUTES_PROMISED


def test_some_notebook_is_executed_live_by_make_test():
    assert any(entry.smoke for entry in COURSE.notebooks)
