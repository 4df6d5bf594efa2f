"""Play a list of requests against an allocator, step by step, and count where the places are."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.allocators import Allocator, Span
from turbo_lab.estimate.paging import Lengths, Shares


@dataclass(frozen=True)
class Occupancy:
    """Averages over the counted steps. ``preemptions``: requests that lost their places."""

    shares: Shares
    running: float
    steps: int
    preemptions: int
    empty_places: float  # per running request: held and without a token, now or ever


@dataclass
class _Run:
    """The state of one play: who waits, who runs and how many tokens each has stored."""

    requests: Sequence[Lengths]
    allocator: Allocator
    waiting: deque[int]
    stored: dict[int, int] = field(default_factory=dict)
    resumed: dict[int, int] = field(default_factory=dict)
    preemptions: int = 0

    def admit(self) -> None:
        """First come, first served: nobody overtakes the head of the queue."""
        while self.waiting:
            key = self.waiting[0]
            size = self.requests[key]
            start = self.resumed.get(key, size.prompt_tokens)
            if not self.allocator.admit(key, prompt_tokens=start, final_tokens=size.stored_tokens):
                break
            self.stored[self.waiting.popleft()] = start
        if not self.stored:
            raise UsageError(
                f"{self.requests[self.waiting[0]]} does not fit into {self.allocator.places} "
                "places even alone; give a larger pool."
            )

    def step(self) -> int:
        """Every running request stores one token, or ends. Returns how many ended."""
        ended = [k for k, s in self.stored.items() if s >= self.requests[k].stored_tokens]
        for key in ended:
            del self.stored[key]
            self.allocator.release(key)
        for key in list(self.stored):
            while key in self.stored and not self.allocator.grow(key, self.stored[key] + 1):
                self._preempt()
            if key in self.stored:
                self.stored[key] += 1
        return len(ended)

    def _preempt(self) -> None:
        """The newest goes back to the head of the queue; it will be computed again."""
        newest = next(reversed(self.stored))
        self.resumed[newest] = self.stored.pop(newest)
        self.allocator.release(newest)
        self.waiting.appendleft(newest)
        self.preemptions += 1


def occupancy(requests: Sequence[Lengths], allocator: Allocator) -> Occupancy:
    """Shares of a pool that always has a queue in front of it.

    The clock is the engine's step; prefill takes one. Counted is from the moment at which as many
    requests have ended as were admitted at first, until the queue is empty: a pool that fills up
    or runs dry says nothing. Raises UsageError when a request cannot fit or nothing is left to
    count.
    """
    run = _Run(requests, allocator, deque(range(len(requests))))
    run.admit()
    first, ended = len(run.stored), 0
    totals = [0.0, 0.0, 0.0, 0.0]  # used, reserved, held, running
    steps = 0
    while run.waiting:
        if ended >= first:
            steps += 1
            for index, amount in enumerate(_amounts(run)):
                totals[index] += amount
        ended += run.step()
        if run.waiting:
            run.admit()
    if not steps:
        raise UsageError(f"{len(requests)} requests are too few for a queue before this pool")
    used, reserved, held, running = (t / steps for t in totals)
    places = allocator.places
    shares = Shares(
        used / places, reserved / places, (held - used - reserved) / places, 1 - held / places
    )
    return Occupancy(shares, running, steps, run.preemptions, (held - used) / running)


def _amounts(run: _Run) -> tuple[float, float, float, float]:
    """Places used, reserved for later and held, and running requests, at this moment."""
    used = reserved = held = 0
    for key, stored in run.stored.items():
        mine = run.allocator.held(key)
        used, held = used + stored, held + mine
        reserved += min(mine, run.requests[key].stored_tokens) - stored
    return float(used), float(reserved), float(held), float(len(run.stored))


def snapshot(
    requests: Sequence[Lengths], allocator: Allocator, *, steps: int
) -> dict[int, tuple[list[Span], int]]:
    """Who has which places after some steps: request to (its spans, tokens it has stored).

    For pictures of small pools. Raises UsageError when the queue is empty before that.
    """
    run = _Run(requests, allocator, deque(range(len(requests))))
    run.admit()
    for _ in range(steps):
        run.step()
        if not run.waiting:
            raise UsageError(f"{len(requests)} requests are too few for {steps} steps")
        run.admit()
    return {key: (allocator.spans(key), stored) for key, stored in run.stored.items()}
