"""One pass over a log: messages of the table and numbers, with constant memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import BinaryIO

from turbo_lab.diagnose.causes import list_causes
from turbo_lab.diagnose.counts import Counts, Seen
from turbo_lab.diagnose.lines import read_lines, unwrapped
from turbo_lab.diagnose.matcher import ABORTED, CONTROL, Matcher, Rule, Template


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
    template_of = matcher.template
    for lines in read_lines(stream):
        number = reading.lines
        for line in lines:
            number += 1
            if b" HTTP/" in line:
                if b'" 200 ' in line:
                    reading.counts.add_good(line)
                    continue
                if reading.counts.add_access(line, number):
                    continue
            if b"eceived request " in line:
                reading.counts.add_request(line, number)
                continue
            lower = line.lower()
            template = template_of(lower)
            if template is None:
                continue
            if template.server:
                reading.server = True
            if not template.quick:
                _take(reading, template, line, lower, number)
            if template.error:
                _error(reading, template, line, number)
        reading.lines = number
        reading.bytes_read += sum(map(len, lines)) + len(lines)
        _served(reading)
    return reading


def _served(reading: LogReading) -> None:
    """Answers and requests mean a server, also where the log's beginning is missing."""
    c = reading.counts
    if c.answers or c.greedy.count or c.random.count:
        reading.server = True


def _take(reading: LogReading, template: Template, line: bytes, lower: bytes, number: int) -> None:
    """Sort one line that may mean something."""
    if template.load:
        reading.phase = "serving"
        reading.counts.load.add(line, lower, number)
    elif template.drafts:
        reading.counts.add_drafts(line, lower, number)
        return
    if template.phase is not None:
        reading.phase = template.phase
        reading.started = reading.started or template.phase == "serving"
    if template.rules:
        _messages(reading, template, line, lower, number)
    if template.aborted and ABORTED.search(lower):
        reading.counts.aborted.add(line, number)


def _messages(
    reading: LogReading, template: Template, line: bytes, lower: bytes, number: int
) -> None:
    phase = reading.phase
    if phase == "start" and reading.counts.answers:
        phase = "serving"
    text = unwrapped(lower.translate(None, CONTROL))
    for rule in template.rules:
        if rule.holds(text, phase):
            seen = reading.messages.setdefault(rule.cause, {}).setdefault(rule, Seen())
            seen.add(line, number)
            seen.stopping += phase == "stopping"


def _error(reading: LogReading, template: Template, line: bytes, number: int) -> None:
    if reading.phase == "stopping":
        return
    reading.trouble.first, reading.trouble.number = line, number
    reading.trouble.count += 1
    if template.named_error:
        reading.root.add(line, number)
