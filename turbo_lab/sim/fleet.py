"""Replicas behind a router: the event loop."""

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


class Fleet:
    """The state of a simulated service.

    Attributes:
        now_fs: time of the last event. last_fs: when the last request finished.
        replicas: all that were ever started. live: those that take requests.
        in_flight: requests sent and not finished.
        backlog: requests that no replica could take (none was live).
        moving: requests whose keys and values are on their way between replicas.
        replica_fs: time that each replica took requests, by its number.
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
        if replicas < 1:
            raise UsageError(f"{replicas} replicas; allowed: 1 or more")
        self.engine, self.router = engine, router
        self.now_fs = self.last_fs = self.in_flight = self._order = self._arrived_fs = 0
        self.migrations = self.restarts = self.moving = 0
        self.replicas: list[Replica] = []
        self.live: list[Replica] = []
        self.backlog: list[Job] = []
        self.replica_fs: dict[int, int] = {}
        self._events: list[tuple[int, int, Replica | Action]] = []
        self._on_finish, self._keep_steps, self._watch = on_finish, keep_steps, watch
        for _ in range(replicas):
            self.start_replica()

    def start_replica(self) -> Replica:
        """Add an empty replica that takes requests from now on."""
        replica = Replica(
            self.engine, on_finish=self._finished, keep_steps=self._keep_steps,
            tag=len(self.replicas),
        )  # fmt: skip
        self.replicas.append(replica)
        self.admit_replica(replica)
        return replica

    def admit_replica(self, replica: Replica) -> None:
        """Let a replica take requests, those that found none first."""
        self.live.append(replica)
        self.live.sort(key=lambda r: r.tag)
        self.replica_fs[replica.tag] = self.replica_fs.get(replica.tag, 0) - self.now_fs
        self.router.members(self.live)
        waiting, self.backlog = self.backlog, []
        for job in waiting:
            self.route(job)

    def remove_replica(self, replica: Replica) -> None:
        """Send no more requests to a replica; what it holds goes on."""
        self.live.remove(replica)
        self.replica_fs[replica.tag] += self.now_fs
        if self.live:
            self.router.members(self.live)

    def route(self, job: Job) -> None:
        """Give a request to the replica that the router picks, at the present time."""
        if not self.live:
            self.backlog.append(job)
            return
        replica = self.router.pick(job) if len(self.live) > 1 else self.live[0]
        self.submit(job, replica)

    def submit(self, job: Job, replica: Replica) -> None:
        """Give a request to this replica."""
        before = replica.end_fs
        replica.submit(job, self.now_fs)
        self.note(replica, before)

    def note(self, replica: Replica, before_fs: int) -> None:
        """Write down that a replica's work ends at another time than before."""
        end_fs = replica.end_fs
        if end_fs != before_fs and end_fs != NEVER:
            self._order += 1
            heappush(self._events, (end_fs, self._order, replica))

    def at(self, time_fs: int, action: Action) -> None:
        """Call ``action(time_fs)`` then, unless all requests are finished before."""
        self._order += 1
        heappush(self._events, (max(time_fs, self.now_fs), self._order, action))

    def run(self, jobs: Iterable[Job]) -> None:
        """Send all requests at their times and go on until every one is finished.

        Raises UsageError where a request is sent before the one before it.
        """
        delay_fs = self.replicas[0].clock.request_fs
        watch = self._watch
        for job in jobs:
            time_fs = job.sent_fs + delay_fs
            if time_fs < self._arrived_fs:
                raise UsageError(
                    f"request {job.index} is sent before the one before it. Sort the trace by time"
                )
            self._until(time_fs)
            self.now_fs = self._arrived_fs = time_fs
            self.in_flight += 1
            self.route(job)
            if watch:
                watch(self)
        self._until(NEVER)
        for replica in self.live:
            self.replica_fs[replica.tag] += self.now_fs

    def _until(self, time_fs: int) -> None:
        """Handle all events before this time."""
        events, watch = self._events, self._watch
        last = time_fs == NEVER
        while events and events[0][0] < time_fs:
            if last and not self.in_flight:
                return
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
