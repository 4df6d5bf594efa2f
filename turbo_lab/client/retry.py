"""Send again what was refused before it began. It stays one request; its user waits meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from turbo_lab.client.stream import Channel, stream_one
from turbo_lab.metrics.timeline import Attempt, Timeline
from turbo_lab.workload.request import Request

REFUSED_STATUS = frozenset({429, 503})
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0


def was_refused(timeline: Timeline) -> bool:
    """True for HTTP 429, HTTP 503 and a refused connection, with nothing streamed before."""
    if timeline.chunks:
        return False
    if timeline.status_code is None:
        return (timeline.error or "").startswith("cannot connect")
    return timeline.status_code in REFUSED_STATUS


def pause_s(refusals: int) -> float:
    """Wait before the next try: 0.1 s, doubled with each refusal, at most 5 s.

    A fixed rule without chance, so that two runs are treated alike; ``Retry-After`` is not read.
    """
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (refusals - 1))


async def stream_with_retries(
    request: Request, *, channel: Channel, scheduled_s: float | None = None, retries: int = 0
) -> Timeline:
    """``stream_one``, and up to ``retries`` further tries of a request that was refused.

    The result is one Timeline: the schedule and the send time of the first try, everything else
    from the last one, so that all waiting is in its latencies. Each try is in ``attempts``.
    """
    timeline = await stream_one(request, channel=channel, scheduled_s=scheduled_s)
    if not retries or not was_refused(timeline):
        return timeline
    first_sent_s, attempts = timeline.sent_s, [_attempt(timeline)]
    while len(attempts) <= retries and was_refused(timeline):
        await asyncio.sleep(pause_s(len(attempts)))
        timeline = await stream_one(request, channel=channel, scheduled_s=scheduled_s)
        attempts.append(_attempt(timeline))
    return replace(timeline, sent_s=first_sent_s, attempts=tuple(attempts))


def _attempt(timeline: Timeline) -> Attempt:
    assert timeline.sent_s is not None and timeline.closed_s is not None
    return Attempt(timeline.sent_s, timeline.status_code, timeline.closed_s, timeline.error)
