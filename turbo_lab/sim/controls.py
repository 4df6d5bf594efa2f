"""What happens to replicas during a run: they fail and come back, or follow the load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError
from turbo_lab.sim.clock import to_fs
from turbo_lab.sim.fleet import Fleet
from turbo_lab.sim.transfer import restart


@dataclass(frozen=True)
class Failure:
    """A replica dies at ``at_s`` and takes requests again, its cache empty, ``down_s`` later."""

    at_s: float
    replica: int
    down_s: float


@dataclass(frozen=True)
class Fail:
    """A control: these failures. Requests on a replica that dies start again on another.

    All that they had computed is lost, and tokens that were out count for nothing: their client
    sees a broken stream and asks again. A dead replica is paid for, as its machine is.
    """

    failures: Sequence[Failure]

    def __call__(self, fleet: Fleet) -> None:
        """Plan the failures. Raises UsageError for a replica that does not exist."""
        for failure in self.failures:
            if not 0 <= failure.replica < len(fleet.replicas) or failure.down_s < 0:
                raise UsageError(
                    f"{failure}: replicas are 0 to {len(fleet.replicas) - 1}, times 0 or more"
                )
            fleet.at(to_fs(failure.at_s), lambda now, f=failure: self._fail(fleet, f, now))

    def _fail(self, fleet: Fleet, failure: Failure, now_fs: int) -> None:
        replica = fleet.replicas[failure.replica]
        pool = fleet.home[replica.tag]
        if replica not in pool.live:
            return  # It is down already, or was scaled away.
        pool.remove(replica)
        for job in replica.fail():
            restart(fleet, job)
        fleet.at(now_fs + to_fs(failure.down_s), lambda _: fleet.open(replica))


@dataclass(frozen=True)
class Autoscale:
    """A control: as many replicas as ``ceil(requests in them / target)``, within limits.

    Looked at every ``every_s``; a new replica takes requests ``startup_s`` later, its cache empty,
    and is paid for from its start. One that is not needed takes no more requests, finishes those
    it has, and is paid for until then.
    """

    target: float
    least: int = 1
    most: int = 8
    every_s: float = 10.0
    startup_s: float = 60.0

    def __call__(self, fleet: Fleet) -> None:
        """Start the clock. Raises UsageError."""
        fine = self.target > 0 and 1 <= self.least <= self.most and self.every_s > 0
        if not fine or self.startup_s < 0:
            raise UsageError(f"{self}: wanted target and every_s above 0, 1 <= least <= most")
        starting: list[int] = []
        closing: set[int] = set()  # dead replicas are not among them: they are paid for
        period_fs = to_fs(self.every_s)

        def ready(now_fs: int) -> None:
            began_fs = starting.pop(0)
            fleet.up_fs[fleet.start_replica(fleet.front).tag] = began_fs

        def look(now_fs: int) -> None:
            for tag in sorted(closing):
                replica = fleet.replicas[tag]
                if not (replica.load or replica.sending):
                    fleet.stop_paying(replica)
                    closing.remove(tag)
            live = fleet.front.live
            load = sum(replica.load for replica in live) + len(fleet.front.backlog)
            wanted = min(max(math.ceil(load / self.target), self.least), self.most)
            for _ in range(wanted - len(live) - len(starting)):
                starting.append(now_fs)
                fleet.at(now_fs + to_fs(self.startup_s), ready)
            for replica in list(live[wanted:] if not starting else ()):
                fleet.front.remove(replica)
                closing.add(replica.tag)
            fleet.at(now_fs + period_fs, look)

        fleet.at(period_fs, look)
