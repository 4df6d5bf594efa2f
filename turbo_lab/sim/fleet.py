"""Replicas behind routers: the event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from turbo_lab.core.errors import UsageError
from turbo_lab.sim.clock import NEVER
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.job import Job
from turbo_lab.sim.replica import Replica, Sink
from turbo_lab.sim.routers import Router

Watch = Callable[["Fleet"], None]
Action = Callable[[int], None]
Control = Callable[["Fleet"], None]
MOST_REPLICAS = 10_000  # At the start; a router looks at each for every request.


class Pool:
    """Replicas that share a router. live: those that take requests now, in order of their number.

    ``backlog``: requests that none could take.
    """

    def __init__(self, router: Router) -> None:
        self.router = router
        self.live: list[Replica] = []
        self.backlog: list[Job] = []

    def add(self, replica: Replica) -> None:
        """This one takes requests from now on."""
        self.live = sorted([*self.live, replica], key=lambda r: r.tag)
        self.router.members(self.live)

    def remove(self, replica: Replica) -> None:
        """This one takes no more."""
        self.live.remove(replica)
        if self.live:
            self.router.members(self.live)


class Fleet:
    """The state of a simulated service.

    Attributes:
        now_fs: time of the last event. last_fs: when the last request finished.
        front: the pool that new requests go to.
        replicas: all that were ever started; ``home[tag]`` is the pool of one.
        in_flight: requests sent and not finished.
        moving: requests whose keys and values are on their way between replicas.
        up_fs: since when a replica is paid for, by its number. paid_fs: what was paid so far.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        router: Router,
        replicas: int,
        on_finish: Sink,
        keep_steps: bool = False,
        watch: Watch | None = None,
    ) -> None:
        if not 1 <= replicas <= MOST_REPLICAS:
            raise UsageError(f"{replicas} replicas; allowed: 1 to {MOST_REPLICAS:,}")
        self.engine = engine
        self.now_fs = self.last_fs = self.paid_fs = 0
        self.in_flight = self.moving = self.migrations = self.restarts = self._order = 0
        self.replicas: list[Replica] = []
        self.home: list[Pool] = []
        self.up_fs: dict[int, int] = {}
        self._events: list[tuple[int, int, Replica | Action]] = []
        self._on_finish, self._keep_steps, self._watch = on_finish, keep_steps, watch
        self.front = Pool(router)
        for _ in range(replicas):
            self.start_replica(self.front)

    def start_replica(self, pool: Pool) -> Replica:
        """Add an empty replica that takes requests from now on."""
        replica = Replica(
            self.engine, on_finish=self._finished, keep_steps=self._keep_steps,
            tag=len(self.replicas),
        )  # fmt: skip
        self.replicas.append(replica)
        self.home.append(pool)
        self.open(replica)
        return replica

    def open(self, replica: Replica) -> None:
        """Let a replica take requests, those that found none first."""
        pool = self.home[replica.tag]
        self.up_fs.setdefault(replica.tag, self.now_fs)
        pool.add(replica)
        waiting, pool.backlog = pool.backlog, []
        for job in waiting:
            self.route(job, pool)

    def stop_paying(self, replica: Replica) -> None:
        """A replica is gone or drained."""
        self.paid_fs += self.now_fs - self.up_fs.pop(replica.tag)

    def route(self, job: Job, pool: Pool) -> None:
        """Give a request to the replica of a pool that its router picks, at the present time."""
        live = pool.live
        if not live:
            pool.backlog.append(job)
            return
        self.submit(job, pool.router.pick(job) if len(live) > 1 else live[0])

    def submit(self, job: Job, replica: Replica) -> None:
        """Give a request to this replica."""
        before = replica.end_fs
        replica.submit(job, self.now_fs)
        if replica.end_fs != before:
            self.note(replica)

    def note(self, replica: Replica) -> None:
        """Write down when the work of a replica ends; needed after each change from outside."""
        if replica.end_fs != NEVER:
            self._order += 1
            heappush(self._events, (replica.end_fs, self._order, replica))

    def at(self, time_fs: int, action: Action) -> None:
        """Call ``action(time_fs)`` then, unless all requests are finished before."""
        self._order += 1
        heappush(self._events, (max(time_fs, self.now_fs), self._order, action))

    def run(self, jobs: Iterable[Job]) -> None:
        """Send all requests at their times and go on until every one is finished.

        Raises UsageError where a request is sent before the one before it, or where requests
        remain that no replica will ever take.
        """
        delay_fs, watch, front = self.replicas[0].clock.request_fs, self._watch, self.front
        arrived_fs, first = 0, True
        for job in jobs:
            time_fs = job.sent_fs + delay_fs
            if time_fs < arrived_fs:
                raise UsageError(
                    f"request {job.index} is sent before the one before it. Sort the trace by time"
                )
            if first:
                first, self.up_fs = False, dict.fromkeys(self.up_fs, job.sent_fs)
            self._until(time_fs, more=True)
            self.now_fs = arrived_fs = time_fs
            self.in_flight += 1
            self.route(job, front)
            if watch:
                watch(self)
        self._until(NEVER, more=False)
        for replica in self.replicas:
            if replica.tag in self.up_fs:
                self.stop_paying(replica)
        if self.in_flight:
            raise UsageError(
                f"{self.in_flight} requests remain and no replica is left to take them"
            )

    def _until(self, time_fs: int, *, more: bool) -> None:
        """Handle all events before this time; without ``more`` to come, while requests are left."""
        events, watch = self._events, self._watch
        while events and events[0][0] < time_fs and (more or self.in_flight):
            when, _, target = heappop(events)
            if isinstance(target, Replica):
                if target.end_fs != when:
                    continue  # Its work was cut short or it failed.
                self.now_fs = when
                target.complete()
                if target.end_fs != NEVER:
                    self._order += 1
                    heappush(events, (target.end_fs, self._order, target))
            else:
                self.now_fs = when
                target(when)
            if watch:
                watch(self)

    def _finished(self, job: Job, now_fs: int) -> None:
        self.in_flight -= 1
        self.last_fs = now_fs
        self._on_finish(job, now_fs)
