"""What a log says in numbers: load lines, answers of the web server, sampling settings.

The load line changed its words over the versions: "Pending" (0.2 to 0.6), "Swapped" and "CPU KV
cache usage" (the old engine), "Waiting", "Prefix cache hit rate" and "Engine 000:" (from 0.8),
"Deferred" and "Preemptions" (0.30). The numbers are found by their own words, not by position.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

FULL_SHARE = 0.95
# Names of a load line, and the name under which each is kept.
_NAMES = {
    b"avg prompt throughput": "prompt_tok_s",
    b"avg generation throughput": "generation_tok_s",
    b"running": "running",
    b"waiting": "waiting",
    b"pending": "waiting",
    b"swapped": "swapped",
    b"preemptions": "preemptions",
    b"gpu kv cache usage": "gpu_kv",
    b"cpu kv cache usage": "cpu_kv",
}
_NUMBER = re.compile(rb"\d+(?:\.\d+)?")
_ACCESS = re.compile(
    rb'"(?:\x1b\[\d+m)*(GET|POST) (\S+) HTTP/[\d.]+(?:\x1b\[\d+m)*\\?" (?:\x1b\[\d+m)*(\d{3})\b'
)
_TEMPERATURE = re.compile(rb"temperature=([\d.]+)")
# A share (0.2 to 0.8) or a percentage (since), with the mean length before it since 0.9.
_DRAFTS = re.compile(rb"draft acceptance rate: ([\d.]*\d)(%?)")
_LENGTH = re.compile(rb"acceptance length: ([\d.]*\d)")
POOR_SHARE, POOR_LENGTH = 0.3, 1.5


@dataclass
class Seen:
    """How often, and the first line that showed it. ``stopping``: seen while it was stopped."""

    count: int = 0
    stopping: int = 0
    first: bytes = b""
    number: int = 0

    def add(self, line: bytes, number: int) -> None:
        """Count one more line; the first is kept as evidence."""
        if not self.count:
            self.first, self.number = line, number
        self.count += 1


@dataclass
class Load:
    """Sums over the load lines in which requests ran or waited."""

    lines: int = 0
    active: int = 0
    most_waiting: int = 0
    queued: Seen = field(default_factory=Seen)
    flooded: Seen = field(default_factory=Seen)
    full: Seen = field(default_factory=Seen)
    swapped: Seen = field(default_factory=Seen)
    preempted: Seen = field(default_factory=Seen)
    slow: Seen = field(default_factory=Seen)
    still: Seen = field(default_factory=Seen)
    still_run: int = 0
    longest_still: int = 0

    def add(self, line: bytes, lower: bytes, number: int) -> None:
        """Take one load line in."""
        values = _values(lower)
        self.lines += 1
        running, waiting = values.get("running", 0.0), values.get("waiting", 0.0)
        if not running and not waiting:
            self.still_run = 0
            return
        self.active += 1
        self.most_waiting = max(self.most_waiting, int(waiting))
        self._pressure(values, running, waiting, line, number)
        self._speed(values, running, line, number)

    def _pressure(
        self, values: dict[str, float], running: float, waiting: float, line: bytes, number: int
    ) -> None:
        if waiting >= max(4.0, running / 2):
            self.queued.add(line, number)
        if waiting >= max(4.0, running):
            self.flooded.add(line, number)
        old_engine = "gpu_kv" in values and "cpu_kv" in values
        pool = values.get("gpu_kv", values.get("cpu_kv", 0.0))
        if pool >= 100 * FULL_SHARE:
            self.full.add(line, number)
        if values.get("swapped", 0.0) or (old_engine and values["cpu_kv"] > 0):
            self.swapped.add(line, number)
        if values.get("preemptions", 0.0):
            self.preempted.add(line, number)

    def _speed(self, values: dict[str, float], running: float, line: bytes, number: int) -> None:
        out, read = values.get("generation_tok_s"), values.get("prompt_tok_s", 0.0)
        if out is None:
            return
        if out == 0.0 and read == 0.0:
            self.still.add(line, number)
            self.still_run += 1
            self.longest_still = max(self.longest_still, self.still_run)
            return
        self.still_run = 0
        if read == 0.0 and running and out / running < 1.0:
            self.slow.add(line, number)


def _values(lower: bytes) -> dict[str, float]:
    """The numbers of a load line by name; its parts are "name: number unit"."""
    out = {}
    for part in lower[max(lower.find(b"avg prompt"), 0) :].split(b", "):
        name, _, text = part.partition(b": ")
        key = _NAMES.get(name)
        number = _NUMBER.match(text) if key else None
        if key and number:
            out[key] = float(number.group())
    return out


@dataclass
class Counts:
    """All numbers of one log; its size does not grow with the log."""

    load: Load = field(default_factory=Load)
    posts: int = 0
    answers: int = 0
    unauthorised: Seen = field(default_factory=Seen)
    not_found: Seen = field(default_factory=Seen)
    refused: Seen = field(default_factory=Seen)
    limited: Seen = field(default_factory=Seen)
    broken: Seen = field(default_factory=Seen)
    aborted: Seen = field(default_factory=Seen)
    poor_drafts: Seen = field(default_factory=Seen)
    draft_lines: int = 0
    greedy: Seen = field(default_factory=Seen)
    random: Seen = field(default_factory=Seen)

    def add_block(self, lower: bytes) -> None:
        """Count the answers of a block, good and bad; the bad ones are looked at one by one."""
        self.answers += lower.count(b" http/1.")
        self.posts += lower.count(b'"post /') + lower.count(b"mpost /")

    def add_access(self, line: bytes, number: int) -> bool:
        """Take a line of the web server in. False when it is none."""
        found = _ACCESS.search(line)
        if not found:
            return False
        method, path, status = found.groups()
        post = method == b"POST"
        if status in (b"401", b"403"):
            self.unauthorised.add(line, number)
        elif status == b"429":
            self.limited.add(line, number)
        elif status[:1] == b"5":
            self.broken.add(line, number)
        elif status == b"404" and post and path.startswith(b"/v1/"):
            self.not_found.add(line, number)
        elif status in (b"400", b"422") and post:
            self.refused.add(line, number)
        return True

    def add_request(self, line: bytes, number: int) -> None:
        """Take the settings of a logged request in; its prompt is never searched."""
        found = _TEMPERATURE.search(line, line.rfind(b"SamplingParams("))
        if found:
            (self.greedy if float(found.group(1)) == 0 else self.random).add(line, number)

    def add_drafts(self, line: bytes, lower: bytes, number: int) -> None:
        """Take a line about speculation in, in its old or its new wording."""
        rate, length = _DRAFTS.search(lower), _LENGTH.search(lower)
        if not rate:
            return
        self.draft_lines += 1
        share = float(rate.group(1)) / (100 if rate.group(2) else 1)
        short = length is None or float(length.group(1)) < POOR_LENGTH
        if share < POOR_SHARE and short:
            self.poor_drafts.add(line, number)
