"""The rows of the error study: each sweep changes one thing."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.turbo.arms import BASE, BASE_SHARDS, Arm, study_arms
from turbo_lab.turbo.study import TurboWorkshop


@pytest.mark.parametrize("effort", ["smoke", "quick", "full"])
def test_each_row_differs_from_the_base_in_one_thing(effort: str) -> None:
    arms = study_arms(effort)
    names = [arm.name for arm in arms]
    assert len(set(names)) == len(names) and names[:3] == [
        "exact merge", "int8 values only", "tables, base",
    ]  # fmt: skip
    for arm in arms[3:]:
        if arm.kind != "tables":
            continue
        changed = {k for k, v in asdict(arm.machine).items() if v != getattr(BASE, k)}
        changed |= {"shards"} if arm.shards != BASE_SHARDS else set()
        changed |= {"tree"} if arm.tree != "chain" else set()
        assert changed <= {arm.group} and len(changed) <= 1


def test_unknown_names_are_refused() -> None:
    for wrong in (study_arms, TurboWorkshop):
        with pytest.raises(UsageError, match="quick"):
            wrong("quik")
    with pytest.raises(UsageError, match="int8"):
        Arm("x", "y", "int9")
