"""One pass over a log: messages of the table and numbers, with constant memory.

A combined prefilter looks at each block once and names the lines that may mean something; only
these are looked at closely. Ordinary answers of the web server are counted in the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from turbo_lab.diagnose.causes import list_causes
from turbo_lab.diagnose.counts import Counts, Seen
from turbo_lab.diagnose.lines import LONGEST_LINE_BYTES, read_blocks, unwrapped
from turbo_lab.diagnose.matcher import ABORTED, CONTROL, Matcher, Rule, Template
from turbo_lab.diagnose.prefilter import Prefilter
from turbo_lab.diagnose.repeats import Repeats

# After so many lines of the level "error" only those with a name or a known message are read.
ERRORS_KEPT = 2000


@dataclass
class LogReading:
    """What one pass found. ``messages`` maps a cause to its sightings per rule.

    ``phase`` is start, serving or stopping; ``trouble`` holds the last line that names an error,
    ``root`` the first one.
    """

    lines: int = 0
    bytes_read: int = 0
    server: bool = False
    started: bool = False
    phase: str = "start"
    counts: Counts = field(default_factory=Counts)
    messages: dict[str, dict[Rule, Seen]] = field(default_factory=dict)
    trouble: Seen = field(default_factory=Seen)
    root: Seen = field(default_factory=Seen)


def scan_log(stream: BinaryIO) -> LogReading:
    """Read a log of any size to its end; bad bytes and cut lines do no harm."""
    reading, matcher = LogReading(), Matcher(list_causes())
    repeats = Repeats()
    for whole in read_blocks(stream):
        block, taken = repeats.without(whole, reading.phase)
        for shape, times in taken:
            _again(reading, shape.template, shape.sightings, times)
        lower = block.lower()
        if not reading.server and matcher.names_a_server(lower):
            reading.server = True
        reading.counts.add_block(lower)
        enough = reading.trouble.count > ERRORS_KEPT
        prefilter = matcher.calm if enough else matcher.prefilter
        for number, start, end in _candidates(lower, prefilter, first=reading.lines + 1):
            line = block[start:end]
            if b"eceived request " in line:
                reading.counts.add_request(line, number)
            elif not (b" HTTP/" in line and reading.counts.add_access(line, number)):
                _line(reading, matcher, line, lower[start:end], number, repeats)
        reading.lines += block.count(b"\n") + (block[-1:] != b"\n")
        reading.bytes_read += len(whole)
        if reading.counts.answers and reading.phase == "start":
            reading.phase = "serving"
    reading.server = reading.server or bool(reading.counts.answers)
    return reading


def _candidates(
    lower: bytes, prefilter: Prefilter, *, first: int
) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of each line that may mean something."""
    places, widths = prefilter.hits(lower)
    if not places.size:
        return
    ends = np.flatnonzero(np.frombuffer(lower, np.uint8) == 10)
    rows = np.searchsorted(ends, places)
    last, holds = -1, prefilter.holds
    for row, at, width in zip(rows.tolist(), places.tolist(), widths.tolist(), strict=True):
        if row == last or not holds(lower, at, width):
            continue
        last = row
        start = int(ends[row - 1]) + 1 if row else 0
        end = int(ends[row]) if row < ends.size else len(lower)
        yield first + row, start, min(end, start + LONGEST_LINE_BYTES)


def _line(
    reading: LogReading,
    matcher: Matcher,
    line: bytes,
    lower: bytes,
    number: int,
    repeats: Repeats,
) -> None:
    """Sort one line that may mean something."""
    template = matcher.template(lower)
    if template is None:
        return
    if template.rules:
        known = repeats.settled(template, reading.phase)
        if known is None:
            hits = _messages(reading, template, line, lower, number)
            repeats.learn(template, reading.phase, hits)
        else:
            _count(reading, known, 1)
            repeats.note(template, reading.phase, line, known)
    if template.life:
        _take(reading, template, line, lower, number)
    if template.error:
        _error(reading, template, line, number)


def _count(reading: LogReading, sightings: tuple[Seen, ...], times: int) -> None:
    for seen in sightings:
        seen.count += times
        seen.stopping += times * (reading.phase == "stopping")


def _again(
    reading: LogReading, template: Template, sightings: tuple[Seen, ...], times: int
) -> None:
    """Many more lines of one settled shape; their first one was kept long ago."""
    _count(reading, sightings, times)
    if template.error and reading.phase != "stopping":
        reading.trouble.count += times
        reading.root.count += times * template.named_error


def _take(reading: LogReading, template: Template, line: bytes, lower: bytes, number: int) -> None:
    """Load lines, lines about drafts, steps of the server's life, and broken off requests."""
    if template.load:
        reading.phase = "serving"
        reading.counts.load.add(line, lower, number)
    elif template.drafts:
        reading.counts.add_drafts(line, lower, number)
    if template.phase is not None:
        reading.phase = template.phase
        reading.started = reading.started or template.phase == "serving"
    if template.aborted and ABORTED.search(lower):
        reading.counts.aborted.add(line, number)


def _messages(
    reading: LogReading, template: Template, line: bytes, lower: bytes, number: int
) -> tuple[Seen, ...]:
    """Note the rules that hold for the line, and return their sightings."""
    phase = reading.phase
    text = unwrapped(lower.translate(None, CONTROL))
    hits = []
    for rule in template.rules:
        if rule.holds(text, phase):
            seen = reading.messages.setdefault(rule.cause, {}).setdefault(rule, Seen())
            seen.add(line, number)
            seen.stopping += phase == "stopping"
            hits.append(seen)
    return tuple(hits)


def _error(reading: LogReading, template: Template, line: bytes, number: int) -> None:
    if reading.phase == "stopping":
        return
    reading.trouble.first, reading.trouble.number = line, number
    reading.trouble.count += 1
    if template.named_error:
        reading.root.add(line, number)
