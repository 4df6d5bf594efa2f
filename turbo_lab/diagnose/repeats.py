"""Lines that come again and again: settled after enough equal sightings, then only counted.

A server in a loop of errors writes one line a million times. Lines that differ in digits only have
one shape (a template). When a shape has led to the same rules SETTLED times, its further lines are
counted without a look. A settled shape that fills a block becomes a pattern: all its lines of the
next blocks are found and blanked in one pass. They stay as empty lines, so that numbers of lines
hold.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from turbo_lab.diagnose.counts import Seen
from turbo_lab.diagnose.matcher import READY, STARTING, STOPPING, Template

SETTLED = 200
SETTLED_KEPT = 2000
OFTEN = 1000  # lines of one shape in one block from which a pattern pays
SHAPES_KEPT = 4
LONGEST_BYTES = 1000
_DIGITS = re.compile(rb"[0-9]+")
_LOAD = (b"prompt throughput",)
# Words that end a phase: in a block that holds one, each line is looked at.
_ENDS = {
    "start": (*READY, *STOPPING, *_LOAD),
    "serving": (*STARTING, *STOPPING),
    "stopping": (*READY, *STARTING, *_LOAD),
}
Key = tuple[int, str]


@dataclass(frozen=True)
class Shape:
    """A shape in one phase: its pattern, what it means, and the sightings it adds to."""

    pattern: re.Pattern[bytes]
    template: Template
    phase: str
    sightings: tuple[Seen, ...]


class Repeats:
    """What is settled about the shapes of one log. Its size does not grow with the log."""

    def __init__(self) -> None:
        self._settled: dict[Key, tuple[int, tuple[Seen, ...]]] = {}
        self._shapes: dict[Key, Shape] = {}
        self._in_block: dict[Key, int] = {}

    def settled(self, template: Template, phase: str) -> tuple[Seen, ...] | None:
        """The sightings of a settled shape, None while each line must be looked at."""
        times, sightings = self._settled.get((template.number, phase), (0, ()))
        return sightings if times >= SETTLED else None

    def learn(self, template: Template, phase: str, sightings: tuple[Seen, ...]) -> None:
        """Keep what a look at one more line gave."""
        key = (template.number, phase)
        times, before = self._settled.get(key, (0, ()))
        self._settled[key] = (times + 1 if sightings == before or not times else 0, sightings)
        if len(self._settled) > SETTLED_KEPT:
            self._settled.clear()

    def note(
        self, template: Template, phase: str, line: bytes, sightings: tuple[Seen, ...]
    ) -> None:
        """Tell of one more line of a settled shape; ``line`` in its own letters."""
        key = (template.number, phase)
        times = self._in_block[key] = self._in_block.get(key, 0) + 1
        if times == OFTEN and len(self._shapes) < SHAPES_KEPT and _plain(template, line):
            self._shapes[key] = Shape(_pattern(line), template, phase, sightings)

    def without(self, block: bytes, phase: str) -> tuple[bytes, list[tuple[Shape, int]]]:
        """(the next block, lines of known shapes blanked; how many of each shape)."""
        self._in_block.clear()
        text, taken = block, []
        for key, shape in list(self._shapes.items()):
            count = 0
            if shape.phase == phase:
                text, count = shape.pattern.subn(b"\n", text)
            if count:
                taken.append((shape, count))
            if count < OFTEN:
                del self._shapes[key]
        lower = text.lower() if taken else b""
        if any(word in lower for word in _ENDS[phase]):
            return block, []
        return text, taken


def _plain(template: Template, line: bytes) -> bool:
    """A short line with nothing but messages and errors; load lines hold numbers of their own."""
    return not template.life and len(line) <= LONGEST_BYTES and b" HTTP/" not in line


def _pattern(line: bytes) -> re.Pattern[bytes]:
    """The line with any digits where it has some, between two line ends."""
    text = b"[0-9]+".join(re.escape(part) for part in _DIGITS.split(line))
    return re.compile(rb"\n" + text + rb"(?=\n)")
