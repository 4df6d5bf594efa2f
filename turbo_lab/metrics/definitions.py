"""This project's own contract: what TTFT, ITL, TPOT and E2E of one request are.

Every function takes one ``Timeline`` and returns seconds, or None where the metric is undefined.
Undefined is never written as 0.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

from turbo_lab.metrics.timeline import VISIBLE_KINDS, Timeline

_SILENT_KINDS = frozenset({"role", "empty"})
FAILING_REASONS = frozenset({"error", "abort"})
RETRIED = "succeeded after a retry"


@dataclass(frozen=True)
class Outcome:
    """Whether the user got the whole answer, and if not why."""

    ok: bool
    reason: str
    notes: tuple[str, ...] = ()


class Arrival(NamedTuple):
    """Visible text that arrived together; ``tokens`` is None when the server did not count it."""

    t_s: float
    tokens: int | None


def outcome(timeline: Timeline) -> Outcome:
    """Success only for a reply that is complete and free of errors.

    A status outside 200-299, an error event inside a 200, a client error or time-out, no answer, a
    stream without finish_reason (with or without [DONE]) are failures. A finish_reason without
    [DONE] is a success with a note.
    """
    if timeline.status_code is not None and not 200 <= timeline.status_code < 300:
        return Outcome(False, f"HTTP {timeline.status_code}")
    if any(c.kind == "error" for c in timeline.events()):
        return Outcome(False, "error inside the stream")
    if timeline.error is not None:
        return Outcome(False, timeline.error)
    if timeline.finish_reason in FAILING_REASONS:
        return Outcome(False, f"finish_reason {timeline.finish_reason}")
    if timeline.finish_reason is None:
        if timeline.saw_done:
            return Outcome(False, "no finish_reason")
        return Outcome(False, "truncated" if timeline.chunks else "no answer")
    notes = () if timeline.saw_done else ("no [DONE]",)
    if timeline.attempts:
        notes += (RETRIED,)
    if not timeline.visible():
        notes += ("empty reply",)
    return Outcome(True, "ok", notes)


def arrivals(timeline: Timeline) -> tuple[Arrival, ...]:
    """Visible chunks, those read in one piece from the network (equal times) put together.

    Their order in time is unknown, so a gap of 0 between them would be an invented number.
    """
    out: list[Arrival] = []
    for chunk in timeline.visible():
        if out and chunk.t_s == out[-1].t_s:
            both_known = out[-1].tokens is not None and chunk.tokens is not None
            out[-1] = Arrival(chunk.t_s, out[-1].tokens + chunk.tokens if both_known else None)
        else:
            out.append(Arrival(chunk.t_s, chunk.tokens))
    return tuple(out)


def output_tokens(timeline: Timeline) -> int | None:
    """Output tokens by the server's usage; else the sum of its per-chunk counts; else None."""
    reported = (timeline.usage or {}).get("completion_tokens")
    if reported is not None:
        return int(reported)
    counts = [c.tokens for c in timeline.visible()]
    if not counts or any(n is None for n in counts):
        return None
    return sum(n for n in counts if n is not None)


def input_tokens(timeline: Timeline) -> int | None:
    """Prompt tokens by the server's usage, else None."""
    reported = (timeline.usage or {}).get("prompt_tokens")
    return None if reported is None else int(reported)


def _since(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else end_s - start_s


def first_visible_s(timeline: Timeline) -> float | None:
    """Time of the first chunk with content, reasoning or tool text."""
    return next((c.t_s for c in timeline.events() if c.kind in VISIBLE_KINDS), None)


def last_visible_s(timeline: Timeline) -> float | None:
    """Time of the last chunk with content, reasoning or tool text."""
    seen = timeline.visible()
    return seen[-1].t_s if seen else None


def ttft_s(timeline: Timeline) -> float | None:
    """Time to first token: send to the first visible chunk (connection set-up included).

    Of a request that was sent again after a refusal: from its first send.
    """
    return _since(timeline.sent_s, first_visible_s(timeline))


def ttft_scheduled_s(timeline: Timeline) -> float | None:
    """Time to first token from the scheduled time: what a user of an open system waits."""
    return _since(timeline.scheduled_s, first_visible_s(timeline))


def ttft_connected_s(timeline: Timeline) -> float | None:
    """Time to first token from the moment a connection was ready: without its set-up."""
    sent, connected = timeline.sent_s, timeline.connected_s
    if sent is None or connected is None:
        return None
    return _since(max(sent, connected), first_visible_s(timeline))


def connect_s(timeline: Timeline) -> float | None:
    """Connection set-up (DNS, TCP, TLS) of the last attempt; undefined on a pooled connection."""
    sent_s = timeline.attempts[-1].sent_s if timeline.attempts else timeline.sent_s
    if timeline.connection_reused or sent_s is None or timeline.connected_s is None:
        return None
    setup = timeline.connected_s - sent_s
    return setup if setup > 0 else None


def dispatch_lag_s(timeline: Timeline) -> float | None:
    """How late the client sent: send time minus scheduled time."""
    return _since(timeline.scheduled_s, timeline.sent_s)


def itl_s(timeline: Timeline) -> tuple[float, ...]:
    """Gaps between arrivals of visible text, in seconds; empty below two arrivals."""
    times = [a.t_s for a in arrivals(timeline)]
    return tuple(b - a for a, b in itertools.pairwise(times))


def itl_tokens(timeline: Timeline) -> tuple[int | None, ...]:
    """Tokens that each gap of ``itl_s`` brought (None where the server does not say)."""
    return tuple(a.tokens for a in arrivals(timeline)[1:])


def tokens_with_first(timeline: Timeline) -> int | None:
    """Tokens that were out when the first text arrived (tokens before it without text included).

    None when the server did not count them, except where the reply has as many chunks with text
    as tokens: then each chunk must hold exactly one.
    """
    seen = arrivals(timeline)
    if not seen:
        return None
    first = seen[0].tokens
    if first is None:
        every_chunk_is_one = len(timeline.visible()) == output_tokens(timeline)
        together = sum(1 for c in timeline.visible() if c.t_s == seen[0].t_s)
        return together if every_chunk_is_one else None
    early = (c for c in timeline.events() if c.t_s <= seen[0].t_s and c.kind in _SILENT_KINDS)
    return first + sum(c.tokens or 0 for c in early)


def tpot_s(timeline: Timeline) -> float | None:
    """Time per output token after the first chunk.

    (last visible - first visible) / (output tokens by usage - tokens of the first chunk).
    Undefined when the denominator is below 1 or the first chunk's tokens are unknown.
    """
    seen, total, first = arrivals(timeline), output_tokens(timeline), tokens_with_first(timeline)
    if len(seen) < 2 or total is None or first is None or total - first < 1:
        return None
    return (seen[-1].t_s - seen[0].t_s) / (total - first)


def e2e_s(timeline: Timeline) -> float | None:
    """Send to the last visible chunk. The close of the stream is kept apart."""
    return _since(timeline.sent_s, last_visible_s(timeline))


def e2e_scheduled_s(timeline: Timeline) -> float | None:
    """Scheduled time to the last visible chunk: a late send counts against the system."""
    return _since(timeline.scheduled_s, last_visible_s(timeline))


def close_s(timeline: Timeline) -> float | None:
    """Send to the close of the stream."""
    return _since(timeline.sent_s, timeline.closed_s)
