"""Who is next: a replica's waiting queue, in arrival order, by priority, or fair to tenants."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.sim.job import Job


class Waiting(Protocol):
    """A queue. ``in_order``: a newcomer never changes who is at its head."""

    in_order: bool

    def push(self, job: Job) -> None:
        """Add a newcomer."""

    def push_back(self, job: Job) -> None:
        """Return one that was preempted."""

    def head(self) -> Job:
        """The next one."""

    def pop(self) -> Job:
        """Take the next one out."""

    def withdraw(self) -> Job | None:
        """Take out the last one that has computed nothing; None where there is none."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Job]: ...


class Fcfs(deque[Job]):
    """First come, first served; preempted requests go to the front."""

    in_order = True

    push = deque.append
    push_back = deque.appendleft
    pop = deque.popleft  # type: ignore[assignment]

    def head(self) -> Job:
        """The next one."""
        return self[0]

    def withdraw(self) -> Job | None:
        """Take out the last one that has computed nothing; None where there is none."""
        for place in range(len(self) - 1, -1, -1):
            job = self[place]
            if not job.admitted:
                del self[place]
                return job
        return None


class ByPriority:
    """Lowest priority number first, then the time of sending, then the number in the trace."""

    in_order = False

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Job]] = []

    def push(self, job: Job) -> None:
        """Add one."""
        heapq.heappush(self._heap, (job.request.priority, job.sent_fs, job.index, job))

    push_back = push

    def head(self) -> Job:
        """The next one."""
        return self._heap[0][3]

    def pop(self) -> Job:
        """Take the next one out."""
        return heapq.heappop(self._heap)[3]

    def withdraw(self) -> Job | None:
        """Take out the last one that has computed nothing; None where there is none."""
        fresh = (row for row in self._heap if not row[3].admitted)
        last = max(fresh, key=lambda row: row[:3], default=None)
        if last is None:
            return None
        self._heap.remove(last)
        heapq.heapify(self._heap)
        return last[3]

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Job]:
        return (row[3] for row in self._heap)


class FairToTenants:
    """The tenant that got the least so far goes first; in arrival order within a tenant.

    A tenant's counter grows, when a request of it is admitted, by ``prompt + 2 * reply`` tokens.
    One that comes back from idleness is lifted to the least counter of the waiting ones, or where
    nobody waits to that of the tenant that left the queue last: it cannot claim the past. Source:
    Sheng et al., Fairness in Serving Large Language Models (virtual token counter), OSDI 2024,
    algorithm 2; here the reply is charged at once, as its length is known.
    """

    in_order = False
    REPLY_WEIGHT = 2

    def __init__(self) -> None:
        self._lines: dict[str, deque[Job]] = {}
        self._served: dict[str, int] = {}
        self._left = 0  # counter of the tenant that left the queue last
        self._size = 0

    def _line(self, tenant: str) -> deque[Job]:
        self._size += 1
        return self._lines.setdefault(tenant, deque())

    def push(self, job: Job) -> None:
        """Add one behind its tenant's others."""
        tenant = job.request.tenant
        if tenant not in self._lines:
            floor = min((self._served[t] for t in self._lines), default=self._left)
            self._served[tenant] = max(self._served.get(tenant, 0), floor)
        self._line(tenant).append(job)

    def push_back(self, job: Job) -> None:
        """Return one that was preempted to the front of its tenant's line.

        It paid already, and its tenant was not idle, so the counter stays.
        """
        self._line(job.request.tenant).appendleft(job)

    def _next(self) -> str:
        return min(self._lines, key=lambda t: (self._served[t], t))

    def head(self) -> Job:
        """The next one."""
        return self._lines[self._next()][0]

    def pop(self) -> Job:
        """Take the next one out and charge its tenant."""
        tenant = self._next()
        job = self._lines[tenant][0]
        self._remove(job)
        if not job.preemptions:
            self._served[tenant] += job.prompt + self.REPLY_WEIGHT * job.output
        if tenant not in self._lines:
            self._left = self._served[tenant]
        return job

    def withdraw(self) -> Job | None:
        """Take out the last arrival that has computed nothing, free of charge; None without one."""
        fresh = (job for job in self if not job.admitted)
        last = max(fresh, key=lambda job: job.index, default=None)
        if last is not None:
            self._remove(last)
        return last

    def _remove(self, job: Job) -> None:
        line = self._lines[job.request.tenant]
        line.remove(job)
        if not line:
            del self._lines[job.request.tenant]
        self._size -= 1

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Job]:
        return (job for line in self._lines.values() for job in line)


POLICIES = {"fcfs": Fcfs, "priority": ByPriority, "fair": FairToTenants}


def make_queue(policy: str) -> Waiting:
    """An empty queue of this policy. Raises UsageError."""
    if policy not in POLICIES:
        raise UsageError(f"scheduling policy {policy!r}." + did_you_mean(policy, [*POLICIES]))
    return POLICIES[policy]()  # type: ignore[return-value]
