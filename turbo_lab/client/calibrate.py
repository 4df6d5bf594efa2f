"""The client's own error, measured on this machine before its numbers are believed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from turbo_lab.client.load import run_open_loop
from turbo_lab.engines.mock_process import MockProcess
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.metrics import definitions
from turbo_lab.metrics.percentiles import percentile
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.workload.arrivals import constant
from turbo_lab.workload.request import Request

SPEECH = Speech(ttft_s=0.02, gap_s=0.01)
WARMUP_REQUESTS = 4


@dataclass(frozen=True)
class Calibration:
    """Errors against known send times, at one rate of requests. All times in seconds.

    ``ttft_error_p95_s`` is the client's TTFT, from its send, minus what passed in the server from
    the arrival of the request to the first text sent; ``itl_error_p95_s`` the same for gaps.
    ``cpu_share`` is the client's processor time over the run's time (1.0 is one full core).
    """

    rate_per_s: float
    requests: int
    failed: int
    ttft_error_p50_s: float | None
    ttft_error_p95_s: float | None
    itl_error_p50_s: float | None
    itl_error_p95_s: float | None
    dispatch_lag_p99_s: float | None
    cpu_share: float

    def within(self, limit_s: float) -> bool:
        """True when nothing failed and both errors are at most ``limit_s`` at P95."""
        errors = (self.ttft_error_p95_s, self.itl_error_p95_s)
        return not self.failed and all(e is not None and e <= limit_s for e in errors)

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)

    def __str__(self) -> str:
        def ms(value: float | None) -> str:
            return "unknown" if value is None else f"{value * 1e3:.2f} ms"

        return (
            f"client at {self.rate_per_s:g} req/s ({self.requests} requests, {self.failed} failed):"
            f" TTFT error P50 {ms(self.ttft_error_p50_s)}, P95 {ms(self.ttft_error_p95_s)};"
            f" ITL error P50 {ms(self.itl_error_p50_s)}, P95 {ms(self.itl_error_p95_s)};"
            f" dispatch lag P99 {ms(self.dispatch_lag_p99_s)};"
            f" {self.cpu_share:.0%} of a core"
        )


def calibrate(
    *, rate_per_s: float = 50.0, requests: int = 150, output_tokens: int = 8
) -> Calibration:
    """Run the client against the mock in another process and compare with its send times.

    Needs one monotonic clock for both processes, which Linux has. Noise of other work only adds to
    the errors: of several calibrations the best one is the client's own error.
    """
    with MockProcess(Script(replies=(Reply(speech=SPEECH),))) as server:
        return calibrate_on(
            server, rate_per_s=rate_per_s, requests=requests, output_tokens=output_tokens
        )


def calibrate_on(
    server: MockProcess, *, rate_per_s: float, requests: int, output_tokens: int = 8, tag: str = "c"
) -> Calibration:
    """As ``calibrate``, on a mock that runs already; ``tag`` makes the request ids unique."""
    asks = [
        Request(f"calibration {tag} {i}", max_tokens=output_tokens, request_id=f"{tag}-{i}")
        for i in range(requests)
    ]
    schedule = constant(requests, rate_per_s=rate_per_s)
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    runs = run_open_loop(
        asks, base_url=server.base_url, schedule_s=schedule, warmup=WARMUP_REQUESTS, timeout_s=60
    )
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    return _compare(runs, server.log(), rate_per_s=rate_per_s, cpu_share=cpu_s / wall_s)


def _compare(
    runs: Sequence[Timeline],
    log: Mapping[str, Mapping[str, Any]],
    *,
    rate_per_s: float,
    cpu_share: float,
) -> Calibration:
    good = [t for t in runs if definitions.outcome(t).ok]
    ttft: list[float] = []
    itl: list[float] = []
    for timeline in good:
        entry = log[str(timeline.request_id)]
        first, gaps = errors_s(timeline, entry)
        ttft.append(first)
        itl += gaps
    lags = [lag for t in runs if (lag := definitions.dispatch_lag_s(t)) is not None]
    return Calibration(
        rate_per_s=rate_per_s,
        requests=len(runs),
        failed=len(runs) - len(good),
        ttft_error_p50_s=percentile(ttft, 50),
        ttft_error_p95_s=percentile(ttft, 95),
        itl_error_p50_s=percentile(itl, 50),
        itl_error_p95_s=percentile(itl, 95),
        dispatch_lag_p99_s=percentile(lags, 99),
        cpu_share=cpu_share,
    )


def errors_s(timeline: Timeline, entry: Mapping[str, Any]) -> tuple[float, list[float]]:
    """Absolute errors of one request: of its TTFT, and of the gap before each later chunk."""
    sends = [t for t, mark in entry["sends"] if mark == "content"]
    seen = [c.t_s for c in timeline.visible()]
    true_ttft = sends[0] - entry["received_s"]
    ttft = abs((definitions.ttft_s(timeline) or 0.0) - true_ttft)
    return ttft, [
        abs((b - a) - (y - x))
        for (a, b), (x, y) in zip(pairwise(seen), pairwise(sends), strict=True)
    ]
