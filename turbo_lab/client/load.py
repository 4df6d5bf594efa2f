"""Load: an open loop that follows a schedule, and a closed loop of users who wait.

What is sent are single requests or conversations, whose next turn waits for the last reply. The
client never caps the load silently, and it sends a refused request again only where ``retries``
allows it: then that is still one request, with all its waiting. Warm-up requests go out first, with
prompts that are never measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from turbo_lab.client.retry import stream_with_retries
from turbo_lab.client.stream import Channel, Target, open_channel
from turbo_lab.client.sync import run_sync
from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.metrics.definitions import outcome
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.workload.conversation import Conversation, conversations, own_requests
from turbo_lab.workload.prompts import warmup_like
from turbo_lab.workload.request import Request

START_DELAY_S = 0.05  # Between setting the clock and the first scheduled request.
NOT_SENT = "not sent: "  # Begins the error of a turn whose conversation broke off before it.
OnFinish = Callable[[Timeline], None]
Item = Request | Conversation


def run_open_loop(
    requests: Sequence[Item],
    *,
    base_url: str,
    schedule_s: Sequence[float],
    timeout_s: float = 600.0,
    warmup: int | Sequence[Request] = 0,
    max_in_flight: int | None = None,
    retries: int = 0,
    on_finish: OnFinish | None = None,
) -> list[Timeline]:
    """Send each request at its scheduled time, whether earlier ones are done or not.

    Args:
        requests: what to send, one per scheduled time: requests, or conversations that begin then
            (a later turn is due ``think_s`` after the end of the reply before it).
        base_url: root of the server.
        schedule_s: seconds from the start, ascending (``workload.arrivals`` makes them).
        timeout_s: limit for each request.
        warmup: how many warm-up requests to send first, or these requests.
        max_in_flight: requests beyond it wait in the client; the wait counts from the scheduled
            time. None (default) never waits. A conversation counts as one.
        retries: further tries of a request that was refused before any token (HTTP 429 or 503, no
            connection); latencies run from its first send.
        on_finish: called with each Timeline as it is complete, in order of completion.

    Returns:
        One Timeline per request, in the order of ``requests`` (turn after turn). Where a turn
        fails, the later ones cannot be asked: their Timelines say "not sent" and count as failed.
    """
    times = _check_schedule(requests, schedule_s)
    target = Target(base_url, timeout_s=timeout_s)
    load = _Load(named(requests), target, on_finish, retries)
    warm = _warmup_list(requests, warmup)
    return run_sync(lambda: load.run(warm, lambda: load.open_loop(times, max_in_flight)))


def run_closed_loop(
    requests: Sequence[Item],
    *,
    base_url: str,
    concurrency: int,
    timeout_s: float = 600.0,
    warmup: int | Sequence[Request] = 0,
    retries: int = 0,
    on_finish: OnFinish | None = None,
) -> list[Timeline]:
    """Keep ``concurrency`` requests in flight: each user sends the next when its last is done.

    A user has one conversation to its end, with its pauses, before it begins another.

    A closed loop slows down with the server, so it hides waiting; ``scheduled_s`` is None.
    Arguments and result as ``run_open_loop``.
    """
    if concurrency < 1:
        raise UsageError(f"concurrency is {concurrency}, it must be at least 1")
    target = Target(base_url, timeout_s=timeout_s)
    load = _Load(named(requests), target, on_finish, retries)
    warm = _warmup_list(requests, warmup)
    return run_sync(lambda: load.run(warm, lambda: load.closed_loop(concurrency)))


def named(requests: Sequence[Item]) -> list[Conversation]:
    """All as conversations, each turn with an id (``r00000`` ... where it has none).

    Raises UsageError for double ids.
    """
    if not requests:
        raise UsageError("there are no requests to send")
    count, ids, out = itertools.count(), Counter[str](), []
    for conversation in conversations(requests):
        turns = []
        for turn in conversation.turns:
            name, number = turn.request_id, next(count)
            name = name or f"r{number:05d}"
            ids[name] += 1
            turns.append(turn if turn.request_id else replace(turn, request_id=name))
        out.append(replace(conversation, turns=tuple(turns)))
    if twice := [name for name, times in ids.items() if times > 1][:3]:
        raise UsageError(f"request ids must be unique; more than once: {twice}")
    return out


def _check_schedule(requests: Sequence[Item], schedule_s: Sequence[float]) -> list[float]:
    times = [float(t) for t in schedule_s]
    if len(times) != len(requests):
        raise UsageError(f"{len(requests)} requests need as many times, not {len(times)}")
    if any(not 0 <= t < float("inf") for t in times) or times != sorted(times):
        raise UsageError("schedule_s must be finite, not negative and ascending")
    return times


def _warmup_list(requests: Sequence[Item], warmup: int | Sequence[Request]) -> list[Request]:
    own = own_requests(requests)
    if isinstance(warmup, int):
        return warmup_like(own, count=warmup)
    measured = {r.prompt_key() for r in own}
    if any(w.prompt_key() in measured for w in warmup):
        raise UsageError(
            "a warm-up prompt is also measured: it would put that prompt in the server's prefix "
            "cache. Give other prompts, or a number."
        )
    return list(warmup)


class _Load:
    """One run: its requests, its results so far, one pool of connections."""

    def __init__(
        self, items: list[Conversation], target: Target, on_finish: OnFinish | None, retries: int
    ) -> None:
        if retries < 0:
            raise UsageError(f"retries is {retries}, it must not be negative")
        self.items, self.target, self.on_finish, self.retries = items, target, on_finish, retries
        self.first = list(itertools.accumulate((len(i.turns) for i in items), initial=0))
        self.done: dict[int, Timeline] = {}
        self.channel: Channel

    async def run(self, warm: Sequence[Request], measure: Callable) -> list[Timeline]:
        """Warm up, then measure."""
        raise_open_files(len(self.items) + 64)
        async with open_channel(self.target) as self.channel:
            await self._warm_up(warm)
            try:
                with quiet_gc():
                    await measure()
            except BaseExceptionGroup as group:  # One cause is enough, e.g. a full disk.
                raise group.exceptions[0] from None
        return [self.done[i] for i in range(self.first[-1])]

    async def _warm_up(self, warm: Sequence[Request]) -> None:
        sent = [self._send(request, None) for request in warm]
        for timeline in await asyncio.gather(*sent):
            if not (state := outcome(timeline)).ok:
                raise EngineError(f"the warm-up request failed: {timeline.error or state.reason}")

    async def _send(self, request: Request, scheduled_s: float | None) -> Timeline:
        return await stream_with_retries(
            request, channel=self.channel, scheduled_s=scheduled_s, retries=self.retries
        )

    def _keep(self, index: int, timeline: Timeline) -> None:
        self.done[index] = timeline
        if self.on_finish is not None:
            self.on_finish(timeline)

    async def one(self, number: int, due_s: float | None) -> None:
        """Have one conversation (mostly of one turn) and keep its Timelines."""
        item, first, replies = self.items[number], self.first[number], []
        for turn in range(len(item.turns)):
            timeline = await self._send(item.ask(turn, replies), due_s)
            self._keep(first + turn, timeline)
            if turn + 1 == len(item.turns):
                return
            if not (state := outcome(timeline)).ok:
                for late in range(turn + 1, len(item.turns)):
                    self._keep(first + late, _not_sent(item.turns[late], turn, state.reason))
                return
            replies.append(timeline.text or "")
            due_s = await _think(timeline, item.think_s, scheduled=due_s is not None)

    async def open_loop(self, times: Sequence[float], max_in_flight: int | None) -> None:
        """Dispatch on schedule."""
        gate = asyncio.Semaphore(max_in_flight) if max_in_flight else None
        start_s = time.perf_counter() + START_DELAY_S

        async def gated(number: int, due_s: float) -> None:
            async with gate or contextlib.nullcontext():
                await self.one(number, due_s)

        async with asyncio.TaskGroup() as group:
            for number, offset_s in enumerate(times):
                due_s = start_s + offset_s
                await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
                group.create_task(gated(number, due_s))

    async def closed_loop(self, concurrency: int) -> None:
        """``concurrency`` users take the next request in turn."""
        queue = iter(range(len(self.items)))

        async def user() -> None:
            for number in queue:
                await self.one(number, None)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(self.items))):
                group.create_task(user())


async def _think(last: Timeline, think_s: float, *, scheduled: bool) -> float | None:
    """Pause as the user does; returns when the next turn is due where there is a schedule."""
    due_s = (last.closed_s or time.perf_counter()) + think_s
    if think_s:
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
    return due_s if scheduled else None


def _not_sent(request: Request, turn: int, reason: str) -> Timeline:
    return Timeline(
        error=f"{NOT_SENT}turn {turn + 1} of this conversation failed ({reason})",
        request_id=request.request_id,
        labels=request.labels,
    )


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
    reason, never a silent cap. The table of open files is grown here too: in a process with threads
    Linux stops whoever opens the 257th file for 10 to 20 ms, in the middle of a measurement.
    """
    try:
        import fcntl
        import resource
    except ImportError:  # Windows has no such limit.
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + 256
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(OSError, ValueError):  # macOS has a lower limit beside it.
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = needed if soft == resource.RLIM_INFINITY else min(needed, soft)
    with contextlib.suppress(OSError), Path(os.devnull).open("rb") as file:
        os.close(fcntl.fcntl(file.fileno(), fcntl.F_DUPFD, highest - 1))
