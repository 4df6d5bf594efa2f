"""One request's raw events, emitted by the load client and the simulator alike."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

from turbo_lab.core.errors import RecordError

ChunkKind = Literal[
    "content", "reasoning", "tool", "role", "empty", "usage", "error", "done", "other"
]
VISIBLE_KINDS: frozenset[str] = frozenset({"content", "reasoning", "tool"})
CLOCK_NOISE_S = 1e-9  # Rounding of a difference of two clock readings, far below a clock tick.


class TimelineError(RecordError, ValueError):
    """A timeline that cannot have happened: NaN, infinity, a clock that goes backwards."""


class Chunk(NamedTuple):
    """One event of the stream.

    ``t_s`` is its arrival on the run's monotonic clock. ``tokens`` is how many output tokens it
    carries by the server's own count, None where the server does not say. ``kind`` is content,
    reasoning or tool (text that the user gets), role or empty (a choice without text), usage,
    error, done (the ``[DONE]`` line) or other.
    """

    t_s: float
    tokens: int | None
    kind: str = "content"


class ChunkRun(NamedTuple):
    """``count`` equal chunks, ``gap_s`` apart: the short form of a long simulated reply."""

    first_s: float
    gap_s: float
    count: int
    tokens: int | None
    kind: str = "content"

    def expand(self) -> Iterator[Chunk]:
        """The chunks one by one."""
        for index in range(self.count):
            yield Chunk(self.first_s + index * self.gap_s, self.tokens, self.kind)


class Attempt(NamedTuple):
    """One try of a request that was sent more than once; ``status_code`` None: no answer came."""

    sent_s: float
    status_code: int | None
    closed_s: float
    error: str | None = None


@dataclass(frozen=True)
class Timeline:
    """Raw events of one request. All times are seconds on one monotonic clock; unknown is None.

    Attributes:
        scheduled_s: when the load plan wanted the request out (None where there is no plan).
        sent_s: when the client began to send it, before any connection set-up.
        connected_s: when a connection was ready for it.
        status_code: HTTP status, None when no answer came or none exists (simulator).
        chunks: ``Chunk`` (or plain ``(t_s, tokens, kind)``) and ``ChunkRun``, in arrival order.
        finish_reason: the server's reason (``stop``, ``length``, ...).
        saw_done: whether ``data: [DONE]`` arrived.
        usage: the server's last usage object.
        closed_s: when the stream ended or was given up.
        error: what went wrong, in words.
        request_id: names the request in messages and records.
        connection_reused: True when a pooled connection served it, None when unknown.
        text: the visible reply; reasoning and tool text are not in it.
        attempts: every try in order, the last one included, where there was more than one. They
            are one request: ``sent_s`` is the first try's, all else tells of the last.
        labels: what the request is part of (``tenant``, ``conversation``, ``turn`` ...) and was
            asked for (``input_tokens``, ``output_tokens``), as the workload named it.
    """

    scheduled_s: float | None = None
    sent_s: float | None = None
    connected_s: float | None = None
    status_code: int | None = None
    chunks: tuple[Chunk | ChunkRun, ...] = ()
    finish_reason: str | None = None
    saw_done: bool = False
    usage: Mapping[str, Any] | None = None
    closed_s: float | None = None
    error: str | None = None
    request_id: str | None = None
    connection_reused: bool | None = None
    text: str | None = field(default=None, repr=False)
    attempts: tuple[Attempt, ...] = ()
    labels: Mapping[str, str | int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Accept plain tuples and lists as chunks and attempts."""
        object.__setattr__(self, "chunks", tuple(_as_chunk(c) for c in self.chunks))
        if self.attempts != ():
            object.__setattr__(self, "attempts", tuple(Attempt(*a) for a in self.attempts))

    def events(self) -> tuple[Chunk, ...]:
        """All chunks, run-length forms expanded."""
        if self._is_plain:
            return self.chunks  # type: ignore[return-value]
        out: list[Chunk] = []
        for item in self.chunks:
            if isinstance(item, ChunkRun):
                out.extend(item.expand())
            else:
                out.append(item)
        return tuple(out)

    def visible(self) -> tuple[Chunk, ...]:
        """Chunks that carry content, reasoning or tool text."""
        return tuple([c for c in self.events() if c.kind in VISIBLE_KINDS])

    @cached_property
    def _is_plain(self) -> bool:
        """No run-length form; known once, for metrics ask for the events very often."""
        return not any(isinstance(c, ChunkRun) for c in self.chunks)

    def validate(self) -> Timeline:
        """Return self, or raise TimelineError naming the request and the impossible value."""
        _check_times(self)
        _check_counts(self)
        return self

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form (one line of a JSONL file). Unknown values are null, never omitted."""
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        out["chunks"] = [_chunk_to_json(c) for c in self.chunks]
        out["usage"] = None if self.usage is None else dict(self.usage)
        out["attempts"] = [list(a) for a in self.attempts]
        out["labels"] = dict(self.labels)
        return out

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Timeline:
        """Inverse of ``to_dict``. Raises TimelineError for an unknown field or a damaged chunk."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(raw) - known):
            raise TimelineError(f"timeline has unknown fields {unknown}; known: {sorted(known)}")
        return cls(**raw)


def _as_chunk(item: Chunk | ChunkRun | Sequence[Any] | Mapping[str, Any]) -> Chunk | ChunkRun:
    if type(item) is Chunk or isinstance(item, Chunk | ChunkRun):
        return item
    try:
        if isinstance(item, Mapping):
            return ChunkRun(**item)
        return Chunk(*item)
    except TypeError as error:
        raise TimelineError(f"chunk {item!r} is not (t_s, tokens, kind): {error}") from None


def _chunk_to_json(item: Chunk | ChunkRun) -> list[Any] | dict[str, Any]:
    return item._asdict() if isinstance(item, ChunkRun) else list(item)


def _check_times(timeline: Timeline) -> None:
    name = timeline.request_id or "(no id)"
    marks = [("scheduled_s", timeline.scheduled_s), ("sent_s", timeline.sent_s)]
    for number, attempt in enumerate(timeline.attempts, start=1):
        marks.append((f"attempt {number}", attempt.sent_s))
        if number < len(timeline.attempts):
            marks.append((f"end of attempt {number}", attempt.closed_s))
    connected, sent = timeline.connected_s, timeline.sent_s
    pooled = connected is not None and sent is not None and connected < sent
    marks.append(("connected_s", None if pooled else connected))  # A pooled one may be older.
    marks += [(f"chunk {i}", c.t_s) for i, c in enumerate(timeline.events())]
    marks.append(("closed_s", timeline.closed_s))
    before: tuple[str, float] | None = None
    for label, value in marks:
        if value is None:
            continue
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise TimelineError(f"request {name}: {label} is {value!r}, not a finite time in s")
        if before is not None and value < before[1] - CLOCK_NOISE_S:
            raise TimelineError(
                f"request {name}: the clock goes backwards from {before[0]} = {before[1]!r} s "
                f"to {label} = {value!r} s"
            )
        before = (label, value)


def _check_counts(timeline: Timeline) -> None:
    name = timeline.request_id or "(no id)"
    for index, chunk in enumerate(timeline.chunks):
        if chunk.kind not in get_args(ChunkKind):
            raise TimelineError(
                f"request {name}: chunk {index} has kind {chunk.kind!r}. "
                f"Allowed: {', '.join(get_args(ChunkKind))}."
            )
        if chunk.tokens is not None and (chunk.tokens != chunk.tokens or chunk.tokens < 0):
            raise TimelineError(f"request {name}: chunk {index} has {chunk.tokens!r} tokens")
        if isinstance(chunk, ChunkRun) and (chunk.count < 1 or not chunk.gap_s >= 0):
            raise TimelineError(f"request {name}: chunk {index} is an impossible run {chunk!r}")
    tokens = (timeline.usage or {}).get("completion_tokens")
    if tokens is not None and not (isinstance(tokens, int | float) and 0 <= tokens < math.inf):
        raise TimelineError(f"request {name}: usage says {tokens!r} completion tokens")
