"""Moving a request's keys and values: prefill and decode pools, and migration between replicas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError
from turbo_lab.network.cost import MessageCost
from turbo_lab.sim.clock import to_fs
from turbo_lab.sim.fleet import Fleet, Pool
from turbo_lab.sim.job import Job
from turbo_lab.sim.pools import make_router
from turbo_lab.sim.replica import Replica
from turbo_lab.sim.routers import least_loaded


@dataclass(frozen=True)
class KvLink:
    """What moving a cache costs: a message of ``tokens * token_bytes`` on the sender's link.

    A sender's transfers follow one another; receivers are no limit.
    """

    cost: MessageCost
    token_bytes: int

    @staticmethod
    def of(bandwidth_bytes_s: float, *, token_bytes: int, latency_s: float = 0.0) -> KvLink:
        """A link with one latency and one bandwidth. Raises UsageError for impossible ones."""
        if not 0 < bandwidth_bytes_s < float("inf") or token_bytes < 1:
            raise UsageError(
                f"bandwidth {bandwidth_bytes_s} bytes/s, {token_bytes} bytes a token; both must be "
                "above 0"
            )
        return KvLink(MessageCost(latency_s, (1 / bandwidth_bytes_s,)), token_bytes)

    def seconds(self, tokens: int) -> float:
        """Seconds for the cache of so many tokens."""
        return self.cost.seconds(tokens * self.token_bytes)


Leave = Callable[[Replica, Job, int], None]
Deliver = Callable[[Job], None]


class Transfers:
    """Caches on their way in one fleet."""

    def __init__(self, fleet: Fleet, link: KvLink) -> None:
        self.fleet, self.link = fleet, link
        self._link_free_fs: dict[int, int] = {}

    def send(self, source: Replica, job: Job, now_fs: int, *, deliver: Deliver) -> None:
        """Move a request that left ``source``; ``deliver`` picks its replica when it arrives."""
        fleet, epoch = self.fleet, source.epoch
        start_fs = max(now_fs, self._link_free_fs.get(source.tag, 0))
        end_fs = start_fs + to_fs(self.link.seconds(job.computed))
        self._link_free_fs[source.tag] = end_fs
        fleet.moving += 1

        def arrive(time_fs: int) -> None:
            fleet.moving -= 1
            if source.epoch != epoch:  # It failed; its memory went with it.
                restart(fleet, job)
                return
            source.sent(job, time_fs)
            fleet.note(source)
            job.arrive(ready=True)
            deliver(job)

        fleet.at(end_fs, arrive)


def restart(fleet: Fleet, job: Job) -> None:
    """Send a request again whose replica failed."""
    fleet.restarts += 1
    job.restart(fleet.now_fs)
    fleet.route(job, fleet.front)


@dataclass(frozen=True)
class Disaggregate:
    """A control: the fleet's replicas compute prompts only; ``decode`` others write the replies.

    The first token comes from the prefill replica, as in DistServe and Splitwise; the cache then
    moves over ``link`` and the request joins the decode replica that ``router`` picks when it
    arrives there. (Behind vLLM's proxies the client's first token is the decode engine's own, so
    that its TTFT holds the transfer and one more step.)
    """

    decode: int
    link: KvLink
    router: str = "least-requests"
    seed: int = 0

    def __call__(self, fleet: Fleet) -> None:
        """Set the fleet up. Raises UsageError."""
        if self.decode < 1:
            raise UsageError(f"{self.decode} decode replicas; allowed: 1 or more")
        pool = Pool(make_router(self.router, seed=self.seed))
        transfers = Transfers(fleet, self.link)

        def leave(source: Replica, job: Job, now_fs: int) -> None:
            transfers.send(source, job, now_fs, deliver=lambda j: fleet.route(j, pool))

        for replica in fleet.replicas:
            replica.only_prompts, replica.on_leave = True, leave
        for _ in range(self.decode):
            fleet.start_replica(pool)


@dataclass(frozen=True)
class Migrate:
    """A control: every ``every_s`` the fullest replica gives a request to the emptiest.

    Only where they differ by more than ``spread`` requests. The last one in the queue goes, which
    costs nothing; without a queue the one that decodes with the least cache goes, over ``link``,
    and stands still on the way. Source: Sun et al., Llumnix, OSDI 2024 (there the move overlaps
    with decoding).
    """

    link: KvLink
    every_s: float = 1.0
    spread: int = 4

    def __call__(self, fleet: Fleet) -> None:
        """Start the clock. Raises UsageError."""
        if self.every_s <= 0 or self.spread < 1:
            raise UsageError(f"every_s {self.every_s}, spread {self.spread}; both must be above 0")
        if any(replica.only_prompts for replica in fleet.replicas):
            raise UsageError("prefill replicas hand over every request; they do not migrate any")
        transfers = Transfers(fleet, self.link)
        period_fs = to_fs(self.every_s)

        def deliver(job: Job) -> None:
            if fleet.front.live:
                fleet.submit(job, least_loaded(fleet.front.live))
            else:
                fleet.front.backlog.append(job)

        def leave(source: Replica, job: Job, now_fs: int) -> None:
            transfers.send(source, job, now_fs, deliver=deliver)

        def look(now_fs: int) -> None:
            live = fleet.front.live
            if len(live) > 1:
                full = max(live, key=lambda r: (r.load, -r.tag))
                empty = min(live, key=lambda r: (r.load, r.tag))
                if full.load - empty.load > self.spread:
                    fleet.migrations += self._move(fleet, full, empty, leave)
            fleet.at(now_fs + period_fs, look)

        fleet.at(period_fs, look)

    def _move(self, fleet: Fleet, full: Replica, empty: Replica, leave: Leave) -> bool:
        job = full.withdraw()
        if job is not None:
            fleet.submit(job, empty)
            return True
        decoding = [job for job in full.running if job.ticket and job not in full.leaving]
        if not decoding:
            return False
        full.on_leave = leave
        full.ask_to_leave(min(decoding, key=lambda job: (job.computed, job.index)), fleet.now_fs)
        fleet.note(full)
        return True
