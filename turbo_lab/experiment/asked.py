"""What each request was asked for, beside what the server counted: lengths, sharing, attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from turbo_lab.client.retry import REFUSED_STATUS
from turbo_lab.experiment.plan import BenchPlan
from turbo_lab.metrics import definitions
from turbo_lab.metrics.timeline import Attempt, Timeline

Pair = tuple[int, int]  # tokens asked for, tokens counted by the server


def output_lengths(plan: BenchPlan, timelines: Sequence[Timeline]) -> list[Pair]:
    """Asked and counted reply lengths; requests that the server did not count are left out."""
    return [
        (int(t.labels.get("output_tokens", plan.output_tokens)), counted)
        for t in timelines
        if (counted := definitions.output_tokens(t)) is not None
    ]


def input_lengths(plan: BenchPlan, timelines: Sequence[Timeline]) -> list[Pair]:
    """Asked and counted prompt lengths; of a later turn, what it added.

    A later turn adds: its prompt - (prompt + reply of the turn before), by the server's counts.
    """
    before = _turns(timelines)
    out = []
    for timeline in timelines:
        counted = definitions.input_tokens(timeline)
        held = _held_before(timeline, before)
        if counted is not None and held is not None:
            asked = int(timeline.labels.get("input_tokens", plan.input_tokens))
            out.append((asked, counted - held))
    return out


def shared_share(timelines: Sequence[Timeline]) -> float | None:
    """Prompt tokens that an earlier request has sent already / all prompt tokens.

    The most that a prefix cache can find (it cuts off whole blocks, and requests that overlap find
    less). 0.0 where the workload shares nothing; None where the server does not count.
    """
    if not any("shared_tokens" in t.labels or "turn" in t.labels for t in timelines):
        return 0.0
    before = _turns(timelines)
    shared = total = 0
    for timeline in timelines:
        counted = definitions.input_tokens(timeline)
        held = _held_before(timeline, before)
        if counted is None or held is None:
            return None
        shared += held + int(timeline.labels.get("shared_tokens", 0))
        total += counted
    return shared / total if total else None


Turns = Mapping[tuple[Any, int], Timeline]


def _turns(timelines: Sequence[Timeline]) -> Turns:
    return {
        (t.labels["conversation"], int(t.labels["turn"])): t
        for t in timelines
        if "turn" in t.labels
    }


def _held_before(timeline: Timeline, turns: Turns) -> int | None:
    """Prompt and reply tokens of the turn before; 0 for a first turn, None where not counted."""
    turn = int(timeline.labels.get("turn", 1))
    if turn == 1:
        return 0
    last = turns.get((timeline.labels["conversation"], turn - 1))
    if last is None:
        return None
    counts = definitions.input_tokens(last), definitions.output_tokens(last)
    return None if None in counts else sum(n for n in counts if n is not None)


def attempts(timelines: Sequence[Timeline]) -> dict[str, Any]:
    """Sends apart from requests: how many were refused, and what became of those requests.

    ``sends`` counts every try, ``refused`` those that ended in HTTP 429, 503 or no connection, by
    reason; ``retried`` requests are each one request, whatever their tries.
    """
    retried = [t for t in timelines if t.attempts]
    refused = Counter(
        reason for t in retried for a in t.attempts if (reason := _refusal(a)) is not None
    )
    saved = sum(definitions.outcome(t).ok for t in retried)
    return {
        "requests": len(timelines),
        "sends": sum(len(t.attempts) or (t.sent_s is not None) for t in timelines),
        "refused": dict(refused),
        "retried": len(retried),
        "succeeded_after_retry": saved,
        "failed_after_retry": len(retried) - saved,
    }


def _refusal(attempt: Attempt) -> str | None:
    if attempt.status_code in REFUSED_STATUS:
        return f"HTTP {attempt.status_code}"
    if attempt.status_code is None and (attempt.error or "").startswith("cannot connect"):
        return "no connection"
    return None


def attempts_text(found: Mapping[str, Any]) -> str:
    """``attempts`` in one line."""
    reasons = ", ".join(f"{n} x {why}" for why, n in found["refused"].items())
    return (
        f"{found['sends']} sends for {found['requests']} requests, "
        f"{sum(found['refused'].values())} refused" + (f" ({reasons})" if reasons else "")
        + f"; {found['succeeded_after_retry']} requests succeeded only after a retry, "
        f"{found['failed_after_retry']} failed even so"
    )  # fmt: skip
