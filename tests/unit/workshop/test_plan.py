"""Time plans follow the measured minutes, and the guide shows the plans of today's course."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from turbo_lab.cli.main import build_app
from turbo_lab.core.errors import TurboLabError, UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.course.manifest import Manifest, load_manifest
from turbo_lab.workshop.plan import (
    HALF_DAY,
    KINDS,
    TWO_DAYS,
    PlanKind,
    Slot,
    find_kind,
    make_plan,
    notebook_minutes,
    updated,
)

GUIDE = repository_root() / "docs" / "workshop.md"


def with_minutes(minutes: list[float]) -> Manifest:
    """The course's own notebooks with other measured minutes."""
    manifest = load_manifest()
    rows = [
        dataclasses.replace(manifest.notebooks[i % 5], id=f"{i:02d}", minutes=m)
        for i, m in enumerate(minutes)
    ]
    return Manifest(manifest.folder, tuple(rows))


def live(slots: tuple[Slot, ...]) -> list[Slot]:
    return [slot for slot in slots if slot.live_min is not None]


def test_the_guide_shows_the_plans_of_this_course() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert text == updated(text, load_manifest()), (
        "docs/workshop.md is stale: turbo-lab workshop plan --update docs/workshop.md"
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_a_plan_fits_its_day_and_follows_the_measured_minutes(kind: PlanKind) -> None:
    manifest = load_manifest()
    slots = make_plan(manifest, kind)
    measured = {e.id: e.minutes for e in manifest.notebooks}
    for slot in live(slots):
        assert slot.live_min == measured[slot.what[:2]]
        spare = kind.pace.talk_min + kind.pace.exercises * kind.pace.exercise_min
        assert slot.minutes == spare + math.ceil(slot.live_min)
    assert all(s.begin_min + s.minutes <= kind.end_min for s in slots)
    assert {s.day for s in slots} == set(range(1, kind.days + 1))


def test_the_two_day_plan_has_every_notebook_once() -> None:
    named = [slot.what[:2] for slot in live(make_plan(load_manifest(), TWO_DAYS))]
    assert named == [e.id for e in load_manifest().notebooks]


@settings(max_examples=30)
@given(st.lists(st.floats(0.5, 9.0), min_size=2, max_size=16))
def test_slots_follow_each_other_and_nobody_works_too_long(minutes: list[float]) -> None:
    slots = make_plan(with_minutes(minutes), TWO_DAYS)
    assert len(live(slots)) == len(minutes)
    for day in (1, 2):
        mine = [s for s in slots if s.day == day]
        for one, following in itertools.pairwise(mine):
            assert following.begin_min == one.begin_min + one.minutes
        worked = 0
        for slot in mine:
            rest = slot.what in ("Pause", "Lunch")
            worked = 0 if rest else worked + slot.minutes * (slot.live_min is not None)
            assert worked <= 90
        assert sum(s.what == "Lunch" for s in mine) <= 1


def test_longer_notebooks_move_the_end() -> None:
    short, long = (make_plan(with_minutes([m] * 5), HALF_DAY)[-1] for m in (1.0, 4.0))
    assert long.begin_min - short.begin_min == 4 * 3  # notebooks 00 to 03 are in that plan


def test_a_plan_that_does_not_fit_is_refused() -> None:
    with pytest.raises(TurboLabError, match="minutes too long on day 1"):
        make_plan(with_minutes([60.0] * 5), HALF_DAY)


def test_a_fraction_of_a_minute_counts_as_one() -> None:
    entry = dataclasses.replace(load_manifest().notebooks[0], minutes=2.1)
    assert notebook_minutes(entry, HALF_DAY.pace) == 10 + 3 + 10


def test_names_and_files_that_do_not_exist_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'half-day'"):
        find_kind("half_day")
    with pytest.raises(UsageError, match="plans: begin"):
        updated("no marks", load_manifest())
    done = CliRunner().invoke(
        build_app("workshop"), ["workshop", "plan", "--update", str(tmp_path / "none.md")]
    )
    assert isinstance(done.exception, UsageError)


def test_the_command_prints_what_the_guide_shows() -> None:
    run = CliRunner().invoke
    told = run(build_app("workshop"), ["workshop", "plan", "half-day"])
    assert told.exit_code == 0 and told.stdout.strip() in GUIDE.read_text(encoding="utf-8")
    data = json.loads(run(build_app("workshop"), ["workshop", "plan", "--json"]).stdout)
    assert set(data) == {"half-day", "two-day"}
