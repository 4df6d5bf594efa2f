"""The committed notebooks are what refresh would write, and keep the house rules."""

from __future__ import annotations

import pytest

from turbo_lab.course.hygiene import check_course
from turbo_lab.course.manifest import load_manifest
from turbo_lab.course.refresh import refresh_course

COURSE = load_manifest()


def test_no_house_rule_is_broken():
    assert [str(finding) for finding in check_course(COURSE)] == []


@pytest.mark.parametrize("entry", COURSE.notebooks, ids=lambda entry: entry.id)
def test_committed_outputs_are_up_to_date(entry):
    (result,) = refresh_course(COURSE, wanted=(entry.id,), check=True)
    assert result.status == "unchanged", "run: turbo-lab course refresh, and commit"
