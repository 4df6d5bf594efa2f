"""Play prompts class by class on one server, with the engine's own account of its guesses."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.metrics import definitions
from turbo_lab.metrics.timeline import VISIBLE_KINDS, Timeline
from turbo_lab.speculative.counters import GuessCounts, read_counts
from turbo_lab.workload.request import Request

SETTLE_S = 0.3  # The engine writes its counters a moment after the last token has left.
REST_S = 1.2  # A vLLM worker polls for a second after its last step, and takes a core for it.


@dataclass(frozen=True)
class ClassRun:
    """One class on one arm. ``counts``: what the engine counted meanwhile."""

    kind: str
    timelines: list[Timeline] = field(repr=False)
    counts: GuessCounts

    def texts(self) -> list[str]:
        """The replies. Raises UnmeasuredError when one is not complete."""
        return [t.text or "" for t in self._whole()]

    def token_s(self) -> float:
        """Seconds per token behind each reply's first arrival, over all replies of the class.

        A sum over a sum: long replies count for more, as they do on the wall clock.
        """
        pairs = [decode_span(t) for t in self._whole()]
        tokens = sum(n for n, _ in pairs)
        if not tokens:
            raise UnmeasuredError(f"the replies of class {self.kind} came in one piece")
        return sum(s for _, s in pairs) / tokens

    def steps(self) -> int:
        """Decode steps by the engine's counter, requests one after the other."""
        return self.counts.decode_steps(requests=len(self.timelines))

    def _whole(self) -> list[Timeline]:
        bad = [definitions.outcome(t).reason for t in self.timelines if not _ok(t)]
        if bad or not self.timelines:
            raise UnmeasuredError(
                f"{len(bad)} of {len(self.timelines)} {self.kind} requests failed: "
                + (bad[0] if bad else "none was sent")
            )
        return self.timelines

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        runs = [t.validate().to_dict() for t in self.timelines]
        return {"kind": self.kind, "timelines": runs, "counts": self.counts.to_dict()}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ClassRun:
        """Inverse of ``to_dict``."""
        runs = [Timeline.from_dict(one) for one in raw["timelines"]]
        return cls(raw["kind"], runs, GuessCounts.from_dict(raw["counts"]))


def _ok(timeline: Timeline) -> bool:
    return definitions.outcome(timeline).ok


def token_marks(timeline: Timeline) -> list[tuple[float, int]]:
    """(time, tokens) of everything that arrived at once; tokens without text (an end mark) count.

    Raises UnmeasuredError where the server gave no token counts with its chunks.
    """
    marks: list[tuple[float, int]] = []
    for chunk in timeline.events():
        if chunk.tokens is None and chunk.kind in VISIBLE_KINDS:
            raise UnmeasuredError("the server gave no token counts with its chunks")
        if not chunk.tokens:
            continue
        if marks and marks[-1][0] == chunk.t_s:
            marks[-1] = (chunk.t_s, marks[-1][1] + chunk.tokens)
        else:
            marks.append((chunk.t_s, chunk.tokens))
    return marks


def decode_span(timeline: Timeline) -> tuple[int, float]:
    """(tokens behind the first arrival, seconds from the first arrival to the last)."""
    marks = token_marks(timeline)
    if len(marks) < 2:
        return 0, 0.0
    return sum(n for _, n in marks[1:]), marks[-1][0] - marks[0][0]


def tokens_per_chunk(timelines: Sequence[Timeline]) -> list[int]:
    """Tokens of every arrival behind each reply's first one.

    An engine sends what a step gave as one chunk, so with one guess per step this is 1 + accepted.
    A busy server may send two steps together: the engine's counters are the judge.
    """
    return [n for t in timelines for _, n in token_marks(t)[1:]]


def play(server: Any, kind: str, asked: Sequence[Request], *, concurrency: int = 1) -> ClassRun:
    """Send the requests of one class and keep what came, with the counters' growth."""
    before = read_counts(server)
    runs = run_closed_loop(asked, base_url=server.base_url, concurrency=concurrency)
    time.sleep(SETTLE_S)
    return ClassRun(kind, runs, read_counts(server).since(before))


def warm(server: Any, asked: Sequence[Request]) -> None:
    """Use the server once: its first request meets cold memory."""
    short = [replace(request, max_tokens=8) for request in asked[:1]]
    run_closed_loop(short, base_url=server.base_url, concurrency=1)


def equal_share(one: Sequence[str], other: Sequence[str]) -> float:
    """Share of replies that are equal, character for character. Raises UnmeasuredError for none."""
    if not one or len(one) != len(other):
        raise UnmeasuredError(f"{len(one)} and {len(other)} replies cannot be compared")
    return sum(a == b for a, b in zip(one, other, strict=True)) / len(one)


def first_difference(one: str, other: str) -> int | None:
    """Index of the first character that differs, None where the texts are equal."""
    if one == other:
        return None
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
