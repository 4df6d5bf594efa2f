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

    def drain(self) -> list[Job]:
        """Take all out, in order."""

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

    def drain(self) -> list[Job]:
        """Take all out, in order."""
        out = list(self)
        self.clear()
        return out


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

    def drain(self) -> list[Job]:
        """Take all out, in order."""
        out = [row[3] for row in sorted(self._heap, key=lambda row: row[:3])]
        self._heap.clear()
        return out

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Job]:
        return (row[3] for row in self._heap)


class FairToTenants:
    """The tenant that got the least so far goes first; in arrival order within a tenant.

    A tenant's counter grows, when a request of it is admitted, by ``prompt + 2 * reply`` tokens.
    One that comes back from idleness is lifted to the least counter of the waiting ones, so that it
    cannot claim the past. Source: Sheng et al., Fairness in Serving Large Language Models (virtual
    token counter), OSDI 2024; here the reply is charged at once, as its length is known.
    """

    in_order = False
    REPLY_WEIGHT = 2

    def __init__(self) -> None:
        self._lines: dict[str, deque[Job]] = {}
        self._served: dict[str, int] = {}
        self._size = 0

    def _line(self, job: Job) -> deque[Job]:
        tenant = job.request.tenant
        line = self._lines.get(tenant)
        if line is None:
            floor = min((self._served[t] for t in self._lines), default=0)
            self._served[tenant] = max(self._served.get(tenant, 0), floor)
            line = self._lines[tenant] = deque()
        self._size += 1
        return line

    def push(self, job: Job) -> None:
        """Add one behind its tenant's others."""
        self._line(job).append(job)

    def push_back(self, job: Job) -> None:
        """Return one that was preempted to the front of its tenant's line; it paid already."""
        self._line(job).appendleft(job)

    def _next(self) -> str:
        return min(self._lines, key=lambda t: (self._served[t], t))

    def head(self) -> Job:
        """The next one."""
        return self._lines[self._next()][0]

    def pop(self) -> Job:
        """Take the next one out and charge its tenant."""
        tenant = self._next()
        line = self._lines[tenant]
        job = line.popleft()
        if not line:
            del self._lines[tenant]
        if not job.preemptions:
            self._served[tenant] += job.prompt + self.REPLY_WEIGHT * job.output
        self._size -= 1
        return job

    def drain(self) -> list[Job]:
        """Take all out, in arrival order, free of charge."""
        out = sorted(self, key=lambda job: job.index)
        self._lines.clear()
        self._size = 0
        return out

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
