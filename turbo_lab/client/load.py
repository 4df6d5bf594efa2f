"""Load: an open loop that follows a schedule, and a closed loop of users who wait.

The client never retries (a retry would count twice or hide a failure) and never caps the load
silently. Warm-up requests go out first, with prompts that are never measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from turbo_lab.client.stream import Channel, Target, open_channel, stream_one
from turbo_lab.client.sync import run_sync
from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.metrics.definitions import outcome
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.workload.prompts import warmup_like
from turbo_lab.workload.request import Request

START_DELAY_S = 0.05  # Between setting the clock and the first scheduled request.
OnFinish = Callable[[Timeline], None]


def run_open_loop(
    requests: Sequence[Request],
    *,
    base_url: str,
    schedule_s: Sequence[float],
    timeout_s: float = 600.0,
    warmup: int | Sequence[Request] = 0,
    max_in_flight: int | None = None,
    on_finish: OnFinish | None = None,
) -> list[Timeline]:
    """Send each request at its scheduled time, whether earlier ones are done or not.

    Args:
        requests: what to send, one per scheduled time.
        base_url: root of the server.
        schedule_s: seconds from the start, ascending (``workload.arrivals`` makes them).
        timeout_s: limit for each request.
        warmup: how many warm-up requests to send first, or these requests.
        max_in_flight: requests beyond it wait in the client; the wait counts from the scheduled
            time. None (default) never waits.
        on_finish: called with each Timeline as it is complete, in order of completion.

    Returns:
        One Timeline per request, in the order of ``requests``.
    """
    times = _check_schedule(requests, schedule_s)
    target = Target(base_url, timeout_s=timeout_s)
    load = _Load(named(requests), target, on_finish)
    warm = _warmup_list(requests, warmup)
    return run_sync(lambda: load.run(warm, lambda: load.open_loop(times, max_in_flight)))


def run_closed_loop(
    requests: Sequence[Request],
    *,
    base_url: str,
    concurrency: int,
    timeout_s: float = 600.0,
    warmup: int | Sequence[Request] = 0,
    on_finish: OnFinish | None = None,
) -> list[Timeline]:
    """Keep ``concurrency`` requests in flight: each user sends the next when its last is done.

    A closed loop slows down with the server, so it hides waiting; ``scheduled_s`` is None.
    Arguments and result as ``run_open_loop``.
    """
    if concurrency < 1:
        raise UsageError(f"concurrency is {concurrency}, it must be at least 1")
    target = Target(base_url, timeout_s=timeout_s)
    load = _Load(named(requests), target, on_finish)
    warm = _warmup_list(requests, warmup)
    return run_sync(lambda: load.run(warm, lambda: load.closed_loop(concurrency)))


def named(requests: Sequence[Request]) -> list[Request]:
    """The requests, each with an id (``r00000`` ... where it has none). Refuses double ids."""
    if not requests:
        raise UsageError("there are no requests to send")
    out = [
        r if r.request_id else replace(r, request_id=f"r{i:05d}") for i, r in enumerate(requests)
    ]
    ids = [r.request_id for r in out]
    if len(set(ids)) < len(ids):
        twice = sorted({i for i in ids if ids.count(i) > 1 and i})[:3]
        raise UsageError(f"request ids must be unique; more than once: {twice}")
    return out


def _check_schedule(requests: Sequence[Request], schedule_s: Sequence[float]) -> list[float]:
    times = [float(t) for t in schedule_s]
    if len(times) != len(requests):
        raise UsageError(f"{len(requests)} requests need as many times, not {len(times)}")
    if any(not 0 <= t < float("inf") for t in times) or times != sorted(times):
        raise UsageError("schedule_s must be finite, not negative and ascending")
    return times


def _warmup_list(requests: Sequence[Request], warmup: int | Sequence[Request]) -> list[Request]:
    if isinstance(warmup, int):
        return warmup_like(requests, count=warmup)
    measured = {r.prompt_key() for r in requests}
    if any(w.prompt_key() in measured for w in warmup):
        raise UsageError(
            "a warm-up prompt is also measured: it would put that prompt in the server's prefix "
            "cache. Give other prompts, or a number."
        )
    return list(warmup)


class _Load:
    """One run: its requests, its results so far, one pool of connections."""

    def __init__(self, requests: list[Request], target: Target, on_finish: OnFinish | None) -> None:
        self.requests, self.target, self.on_finish = requests, target, on_finish
        self.done: dict[int, Timeline] = {}
        self.channel: Channel

    async def run(self, warm: Sequence[Request], measure: Callable) -> list[Timeline]:
        """Warm up, then measure."""
        raise_open_files(len(self.requests) + 64)
        async with open_channel(self.target) as self.channel:
            await self._warm_up(warm)
            try:
                with quiet_gc():
                    await measure()
            except BaseExceptionGroup as group:  # One cause is enough, e.g. a full disk.
                raise group.exceptions[0] from None
        return [self.done[i] for i in range(len(self.requests))]

    async def _warm_up(self, warm: Sequence[Request]) -> None:
        sent = [stream_one(w, channel=self.channel) for w in warm]
        for timeline in await asyncio.gather(*sent):
            if not (state := outcome(timeline)).ok:
                raise EngineError(f"the warm-up request failed: {timeline.error or state.reason}")

    async def one(self, index: int, scheduled_s: float | None) -> None:
        """Send one request and keep its Timeline."""
        timeline = await stream_one(
            self.requests[index], channel=self.channel, scheduled_s=scheduled_s
        )
        self.done[index] = timeline
        if self.on_finish is not None:
            self.on_finish(timeline)

    async def open_loop(self, times: Sequence[float], max_in_flight: int | None) -> None:
        """Dispatch on schedule."""
        gate = asyncio.Semaphore(max_in_flight) if max_in_flight else None
        start_s = time.perf_counter() + START_DELAY_S

        async def gated(index: int, due_s: float) -> None:
            async with gate or contextlib.nullcontext():
                await self.one(index, due_s)

        async with asyncio.TaskGroup() as group:
            for index, offset_s in enumerate(times):
                due_s = start_s + offset_s
                await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
                group.create_task(gated(index, due_s))

    async def closed_loop(self, concurrency: int) -> None:
        """``concurrency`` users take the next request in turn."""
        queue = iter(range(len(self.requests)))

        async def user() -> None:
            for index in queue:
                await self.one(index, None)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(self.requests))):
                group.create_task(user())


@contextlib.contextmanager
def quiet_gc() -> Iterator[None]:
    """No garbage collection while we measure: with large libraries loaded one pass stops the
    client for tens of milliseconds, which would look like the server's latency.
    """
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def raise_open_files(wanted: int) -> None:
    """Lift the soft limit of open files to what this run needs, as far as the hard limit allows.

    Where it is too low even so, a connection that cannot be opened is a failed request with that
    reason, never a silent cap.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + 256
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
