"""Time plans for a workshop, computed from the measured minutes in ``course.toml``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from turbo_lab.core.errors import TurboLabError, UsageError, did_you_mean
from turbo_lab.course.manifest import Manifest, NotebookEntry

BEGIN, END = "<!-- plans: begin -->", "<!-- plans: end -->"
PAUSE_AFTER_MIN = 90  # of work without a pause
LUNCH_FROM_MIN = 12 * 60


@dataclass(frozen=True)
class Pace:
    """Minutes that are the instructor's choice, not a measurement."""

    talk_min: int = 10
    exercise_min: int = 5
    exercises: int = 2
    setup_min: int = 20
    wrap_up_min: int = 10
    pause_min: int = 15
    lunch_min: int = 60


@dataclass(frozen=True)
class PlanKind:
    """A workshop: ``notebooks`` None means the whole course. Times are minutes of the day."""

    name: str
    title: str
    days: int
    begin_min: int
    end_min: int
    pace: Pace
    notebooks: tuple[str, ...] | None = None


HALF_DAY = PlanKind(
    "half-day", "Half a day", days=1, begin_min=9 * 60, end_min=13 * 60,
    pace=Pace(), notebooks=("00", "01", "02", "03", "08", "17"),
)  # fmt: skip
TWO_DAYS = PlanKind(
    "two-day", "Two days", days=2, begin_min=9 * 60, end_min=17 * 60,
    pace=Pace(talk_min=15, exercises=3),
)  # fmt: skip
KINDS = (HALF_DAY, TWO_DAYS)


@dataclass(frozen=True)
class Slot:
    """One line of a plan. ``live_min`` is measured; the other parts follow from the pace."""

    day: int
    begin_min: int
    minutes: int
    what: str
    live_min: float | None = None

    @property
    def clock(self) -> str:
        """Begin as ``09:00``."""
        return f"{self.begin_min // 60:02d}:{self.begin_min % 60:02d}"


def find_kind(name: str) -> PlanKind:
    """The plan of that name. Raises UsageError naming those that exist."""
    for kind in KINDS:
        if kind.name == name:
            return kind
    raise UsageError(f"There is no plan {name!r}.{did_you_mean(name, [k.name for k in KINDS])}")


def notebook_minutes(entry: NotebookEntry, pace: Pace) -> int:
    """Minutes for one notebook: talk + measured live run (rounded up) + exercises."""
    return pace.talk_min + math.ceil(entry.minutes) + pace.exercises * pace.exercise_min


def make_plan(manifest: Manifest, kind: PlanKind) -> tuple[Slot, ...]:
    """Slots of all days. Notebooks of the plan that the course does not have are left out.

    Raises TurboLabError when a day is longer than its hours, with what to change.
    """
    chosen = [e for e in manifest.notebooks if kind.notebooks is None or e.id in kind.notebooks]
    slots: list[Slot] = []
    for day, entries in enumerate(_by_day(chosen, kind), start=1):
        slots += _day(day, entries, kind)
        if (over_min := slots[-1].begin_min + slots[-1].minutes - kind.end_min) > 0:
            raise TurboLabError(
                f"The {kind.name} plan is {over_min} minutes too long on day {day}. Use fewer "
                "exercises, less talk, or fewer notebooks."
            )
    return tuple(slots)


def _by_day(entries: Sequence[NotebookEntry], kind: PlanKind) -> list[list[NotebookEntry]]:
    """Notebooks in course order, about the same work on each day."""
    share = sum(notebook_minutes(e, kind.pace) for e in entries) / kind.days
    days: list[list[NotebookEntry]] = [[] for _ in range(kind.days)]
    spent = 0.0
    for entry in entries:
        minutes = notebook_minutes(entry, kind.pace)
        days[min(kind.days - 1, int((spent + minutes / 2) / share))].append(entry)
        spent += minutes
    return days


def _day(day: int, entries: Sequence[NotebookEntry], kind: PlanKind) -> list[Slot]:
    pace, slots = kind.pace, [Slot(day, kind.begin_min, 0, "")]

    def add(minutes: int, what: str, live_min: float | None = None) -> None:
        begin_min = slots[-1].begin_min + slots[-1].minutes
        slots.append(Slot(day, begin_min, minutes, what, live_min))

    add(pace.setup_min, "Welcome, `turbo-lab env --check`" if day == 1 else "Questions of day 1")
    rested_min = kind.begin_min
    lunch = kind.end_min < LUNCH_FROM_MIN + 2 * pace.lunch_min  # a half day has none
    for entry in entries:
        minutes = notebook_minutes(entry, pace)
        now_min = slots[-1].begin_min + slots[-1].minutes
        tired = now_min + minutes - rested_min > PAUSE_AFTER_MIN
        late = now_min + minutes > LUNCH_FROM_MIN + 30
        if not lunch and (late or (tired and now_min > LUNCH_FROM_MIN - 30)):
            add(pace.lunch_min, "Lunch")
            lunch, rested_min = True, now_min + pace.lunch_min
        elif tired:
            add(pace.pause_min, "Pause")
            rested_min = now_min + pace.pause_min
        add(minutes, f"{entry.id} {entry.title}: {entry.question}", entry.minutes)
    add(pace.wrap_up_min, "What did it show? One sentence each")
    return slots[1:]


def render_plan(manifest: Manifest, kind: PlanKind) -> list[str]:
    """The plan as Markdown lines."""
    slots, pace = make_plan(manifest, kind), kind.pace
    per_notebook = (
        f"Each notebook: {pace.talk_min} minutes of talk, the live run, {pace.exercises} exercises "
        f"of {pace.exercise_min} minutes."
    )
    lines = [f"### {kind.title}", "", per_notebook]
    for day in range(1, kind.days + 1):
        mine = [s for s in slots if s.day == day]
        lines += ["", *([f"Day {day}", ""] if kind.days > 1 else [])]
        lines += ["| begin | minutes | what | live run (measured) |", "|---|---|---|---|"]
        for slot in mine:
            live = "" if slot.live_min is None else f"{slot.live_min:g} min"
            lines.append(f"| {slot.clock} | {slot.minutes} | {slot.what} | {live} |")
        last = replace(mine[-1], begin_min=mine[-1].begin_min + mine[-1].minutes, minutes=0)
        lines += ["", f"End: {last.clock}; {kind.end_min - last.begin_min} minutes in reserve."]
    return lines


def render_all(manifest: Manifest) -> str:
    """The part of ``docs/workshop.md`` between its two marks, marks included."""
    blocks = ["\n".join(render_plan(manifest, kind)) for kind in KINDS]
    return f"{BEGIN}\n\n" + "\n\n".join(blocks) + f"\n\n{END}"


def updated(text: str, manifest: Manifest) -> str:
    """``text`` with the part between the marks made anew. Raises UsageError without marks."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise UsageError(f"the text must hold {BEGIN} and {END} once, in this order")
    head, rest = text.split(BEGIN)
    return head + render_all(manifest) + rest.split(END)[1]
