"""One client at one rate against one mock server: both on cores of their own, both watched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from rate_clients import CHUNKS, Client

from turbo_lab.engines.base import http_get
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.metrics.percentiles import percentile

TTFT_S, GAP_S = 0.05, 0.01
LAG_LIMIT_S, RATE_SHARE = 0.005, 0.95
MOCK_BUSY_LIMIT, MOCK_LATE_LIMIT_S = 0.8, 0.0025
CLIENT_TIMEOUT_S = 240.0


@dataclass(frozen=True)
class Outcome:
    """One client at one rate; unknown is None.

    Attributes:
        rate: requests/s asked for.
        sent_rate: requests/s that reached the mock.
        late_p99_s: how far arrivals at the mock lay behind the even schedule.
        lag_p99_s: P99 of the reported TTFT minus P99 of what passed inside the mock.
        errors: requests reported as failed, or not reported.
        cpu_s: CPU time of the client's whole process tree.
        tokens: streamed by the mock.
        mock_busy: share of its core that the mock used while requests ran.
        mock_late_p99_s: how far the mock's first chunks lay behind its own script.
        others_busy: share of the machine that other processes took meanwhile.
    """

    rate: float
    sent_rate: float | None
    late_p99_s: float | None
    lag_p99_s: float | None
    errors: int
    cpu_s: float
    tokens: int
    mock_busy: float | None = None
    mock_late_p99_s: float | None = None
    others_busy: float | None = None

    @property
    def sustained(self) -> bool:
        """Sent in time, without errors, and the lag is below the limit."""
        near = self.sent_rate is not None and self.sent_rate >= RATE_SHARE * self.rate
        slow = self.lag_p99_s is None or self.lag_p99_s >= LAG_LIMIT_S
        return near and not self.errors and not slow

    @property
    def mock_is_limit(self) -> bool:
        """The mock was too busy or too late for a verdict on the client."""
        busy = (self.mock_busy or 0.0) > MOCK_BUSY_LIMIT
        return busy or (self.mock_late_p99_s or 0.0) > MOCK_LATE_LIMIT_S


def one_run(client: Client, rate: float, count: int, home: Path) -> Outcome:
    """Start the mock and the client on their cores; read what both saw."""
    cores = sorted(os.sched_getaffinity(0))
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=home))
    script = Script(replies=(Reply(speech=Speech(TTFT_S, GAP_S, CHUNKS)),))
    (folder / "script.json").write_text(json.dumps(script.to_dict()))
    mock = subprocess.Popen(
        [sys.executable, "-m", "turbo_lab.engines.mock_server", "--with-parent", "--script",
         str(folder / "script.json")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {cores[-1]}),
    )  # fmt: skip
    try:
        assert mock.stdout is not None
        url, watched = mock.stdout.readline().split()[-1], psutil.Process(mock.pid)
        before_s, began_s, used_s = sum(watched.cpu_times()[:2]), time.monotonic(), machine_cpu_s()
        cpu_s = run_client(client, url, rate, count, folder, core=cores[0])
        mock_cpu_s = sum(watched.cpu_times()[:2]) - before_s
        wall_s, all_s = time.monotonic() - began_s, machine_cpu_s() - used_s
        log = json.loads(http_get(url, "/mock/log", timeout_s=60)[1])
    finally:
        mock.terminate()
        mock.wait(10)
    try:
        ttfts, errors = client.read(folder)
    except (OSError, ValueError, KeyError, StopIteration) as error:
        tail = (folder / "client.log").read_text(errors="replace")[-1500:]
        print(f"{client.name} at {rate:g}/s left no result: {error!r}\n{tail}", file=sys.stderr)
        return Outcome(rate, None, None, None, count, cpu_s, 0)
    seen = judge(rate, count, log[-count:], ttfts, errors, cpu_s=cpu_s, mock_cpu_s=mock_cpu_s)
    others_s = max(0.0, all_s - cpu_s - mock_cpu_s)
    return replace(seen, others_busy=others_s / (wall_s * (psutil.cpu_count() or 1)))


def machine_cpu_s() -> float:
    """CPU seconds of all processes since the machine started, waiting for disks left out."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0)


def run_client(
    client: Client, url: str, rate: float, count: int, folder: Path, *, core: int
) -> float:
    """Run it pinned to one core; returns the CPU seconds of its whole process tree."""
    before = os.times()
    with (folder / "client.log").open("w") as log:
        process = subprocess.Popen(
            client.command(url, rate, count, folder), stdout=log, stderr=log,
            env={**os.environ, **client.env}, cwd=client.cwd, start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )  # fmt: skip
        try:
            process.wait(timeout=CLIENT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
    after = os.times()
    return (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )


def judge(
    rate: float, count: int, log: Sequence[Mapping[str, Any]], ttfts: Sequence[float],
    errors: int, *, cpu_s: float, mock_cpu_s: float,
) -> Outcome:  # fmt: skip
    """What the client reported against what passed inside the mock."""
    marks = [[t for t, mark in entry["sends"] if mark == "content"] for entry in log]
    true = [s[0] - e["received_s"] for s, e in zip(marks, log, strict=True) if s]
    received = sorted(entry["received_s"] for entry in log)
    ends = [entry["ended_s"] for entry in log if entry["ended_s"] is not None]
    span_s = received[-1] - received[0] if len(received) > 1 else 0.0
    served_s = max(ends, default=0.0) - received[0] if received else 0.0
    high, truth = percentile(ttfts, 99), percentile(true, 99)
    return Outcome(
        rate=rate,
        sent_rate=(len(received) - 1) / span_s if span_s > 0 else None,
        late_p99_s=lateness_p99_s(received, rate),
        lag_p99_s=high - truth if high is not None and truth is not None else None,
        errors=errors + max(0, count - len(ttfts) - errors),
        cpu_s=cpu_s,
        tokens=sum(map(len, marks)),
        mock_busy=mock_cpu_s / served_s if served_s > 0 else None,
        mock_late_p99_s=None if truth is None else truth - TTFT_S,
    )


def lateness_p99_s(received: Sequence[float], rate: float) -> float | None:
    """P99 of arrivals behind an even schedule that the earliest of them defines."""
    offsets = [t - i / rate for i, t in enumerate(received)]
    return percentile([o - min(offsets) for o in offsets], 99)
