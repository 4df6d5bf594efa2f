"""Where the engine says its requests spent their time: queue, prefill, decode.

vLLM adds every finished request to histograms on ``/metrics``. The difference of two readings
belongs to the requests between them. Sums and means can be added up; medians cannot.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.engines.metrics_page import sum_over_labels
from turbo_lab.metrics import definitions
from turbo_lab.metrics.timeline import Timeline

HISTOGRAMS = {
    "queue_s": "vllm:request_queue_time_seconds",
    "prefill_s": "vllm:request_prefill_time_seconds",
    "decode_s": "vllm:request_decode_time_seconds",
    "server_s": "vllm:e2e_request_latency_seconds",
}
PARTS = ("connection", "network and client", "API process", "queue", "prefill", "decode")


class HasMetrics(Protocol):
    """A server whose counters can be read."""

    def metrics(self) -> dict[str, float]:
        """``name{labels}`` to value."""


@dataclass(frozen=True)
class RequestTimes:
    """Sums over ``requests`` finished requests, in seconds, on the server's clock.

    ``queue_s``: queued in the engine until first scheduled. ``prefill_s``: scheduled until the
    first token. ``decode_s``: first to last token. ``server_s``: arrival in the API process until
    the last token left it, so it holds the other three and the API process's own work.
    """

    requests: int
    queue_s: float
    prefill_s: float
    decode_s: float
    server_s: float

    def since(self, before: RequestTimes) -> RequestTimes:
        """What was added after ``before``."""
        pairs = ((f.name, f) for f in dataclasses.fields(self))
        return RequestTimes(**{n: getattr(self, n) - getattr(before, n) for n, _ in pairs})

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return dataclasses.asdict(self)


def read_times(server: HasMetrics) -> RequestTimes:
    """The server's sums since its start. Raises UnmeasuredError where it publishes none."""
    sums = sum_over_labels(server.metrics())
    missing = [h for h in HISTOGRAMS.values() if f"{h}_sum" not in sums]
    if missing:
        raise UnmeasuredError(f"the server publishes no {', '.join(missing)} on /metrics")
    count = sums[f"{HISTOGRAMS['server_s']}_count"]
    parts = {name: sums[f"{histogram}_sum"] for name, histogram in HISTOGRAMS.items()}
    return RequestTimes(requests=int(count), **parts)


def times_since(
    server: HasMetrics, before: RequestTimes, *, requests: int, patience_s: float = 5.0
) -> RequestTimes:
    """The times of ``requests`` requests that have just ended.

    The server counts a request a moment after its last byte has left, so this waits until all are
    counted. Raises UnmeasuredError when they never are, or when others used the server meanwhile.
    """
    deadline = time.monotonic() + patience_s
    while True:
        found = read_times(server).since(before)
        if found.requests >= requests or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    if found.requests != requests:
        raise UnmeasuredError(
            f"the server counted {found.requests} requests, {requests} were sent: some failed, or "
            "others used the server at the same time"
        )
    return found


def split_e2e(times: RequestTimes, timelines: Sequence[Timeline]) -> Mapping[str, float]:
    """Mean seconds per request by part; the parts add up to the client's mean E2E.

    ``connection`` is the client's; ``queue``, ``prefill`` and ``decode`` are the engine's;
    ``API process`` is the rest of the server's own E2E (HTTP, tokens to text, handing over, waiting
    for the step that runs); ``network and client`` is what remains of the client's E2E.

    Raises UnmeasuredError when a request failed: its time would be in one clock only.
    """
    ends = [definitions.e2e_s(t) for t in timelines if definitions.outcome(t).ok]
    whole = [end for end in ends if end is not None]
    count = len(timelines)
    if not count or len(whole) < count or times.requests != count:
        raise UnmeasuredError(
            f"{count} requests sent, {len(whole)} succeeded, {times.requests} counted by the server"
        )
    connection = sum(definitions.connect_s(t) or 0.0 for t in timelines)
    engine = times.queue_s + times.prefill_s + times.decode_s
    sums = (connection, sum(whole) - connection - times.server_s, times.server_s - engine,
            times.queue_s, times.prefill_s, times.decode_s)  # fmt: skip
    return {name: total / count for name, total in zip(PARTS, sums, strict=True)}
