"""The client's own error, against a mock in another process whose send times are known.

The error of TTFT is the client's value, from its send, minus what passed in the server between the
arrival of the request and the first text sent; the error of ITL is the same for gaps. Both
processes read the machine's one monotonic clock (Linux). Other work on the machine only ever adds
to the error, so the best of a few short runs is the client's own.
"""

from __future__ import annotations

import sys
from itertools import pairwise

import psutil
import pytest

from turbo_lab.client.load import run_open_loop
from turbo_lab.engines.mock_process import MockProcess
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.metrics import definitions as d
from turbo_lab.metrics.percentiles import percentile
from turbo_lab.workload.arrivals import constant
from turbo_lab.workload.request import Request

RATE_PER_S, REQUESTS, TRIES, LIMIT_S = 50, 150, 8, 1e-3
QUIET = 0.15  # share of the machine that others may use where 1 ms is to be judged
SCRIPT = Script(replies=(Reply(speech=Speech(ttft_s=0.02, gap_s=0.01)),))


def p95_errors_s(server: MockProcess, attempt: int) -> tuple[float, float]:
    """P95 of the absolute errors of TTFT and of ITL in one run."""
    asks = [
        Request(f"run {attempt} question {i}", max_tokens=8, request_id=f"{attempt}-{i}")
        for i in range(REQUESTS)
    ]
    schedule = constant(REQUESTS, rate_per_s=RATE_PER_S)
    runs = run_open_loop(asks, base_url=server.base_url, schedule_s=schedule, warmup=4)
    log, ttft, itl = server.log(), [], []
    for timeline in runs:
        entry = log[timeline.request_id]
        sends = [t for t, mark in entry["sends"] if mark == "content"]
        seen = [c.t_s for c in timeline.visible()]
        ttft.append(abs(d.ttft_s(timeline) - (sends[0] - entry["received_s"])))
        itl += [
            abs((b - a) - (y - x))
            for (a, b), (x, y) in zip(pairwise(seen), pairwise(sends), strict=True)
        ]
    assert len(ttft) == REQUESTS and len(itl) == 7 * REQUESTS
    return percentile(ttft, 95), percentile(itl, 95)


def other_load() -> float:
    """Share of the machine that other processes use while this one waits, 0 to 1."""
    return psutil.cpu_percent(interval=1.0) / 100


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs one clock for two processes")
def test_ttft_and_itl_errors_are_at_most_a_millisecond_at_p95_at_50_requests_per_second():
    seen, before = [], other_load()
    with MockProcess(SCRIPT) as server:
        for attempt in range(TRIES):
            seen.append(p95_errors_s(server, attempt))
            if max(seen[-1]) <= LIMIT_S:
                return
    if (load := max(before, other_load())) > QUIET:
        pytest.skip(f"too busy to judge 1 ms: other processes take {load:.0%} of this machine")
    shown = "; ".join(f"TTFT {a * 1e3:.2f} ms, ITL {b * 1e3:.2f} ms" for a, b in seen)
    pytest.fail(f"P95 errors in {TRIES} runs: {shown}")
