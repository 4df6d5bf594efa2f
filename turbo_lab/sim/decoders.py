"""The sequences of a replica that decode, as a group: each step gives every one of them a token.

Nothing is done per sequence and step. A sequence knows the step in which it ends; how many of them
open a new block in a step is one number per step modulo the block size; the tokens in their caches
grow by their count. So a run of any number of steps costs the same.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Protocol

from turbo_lab.sim.job import Job
from turbo_lab.sim.step_log import StepLog


class Group(Protocol):
    """Sequences that decode together.

    Attributes:
        step: number of steps this group has done.
        count: sequences in it.
        context: tokens in their caches, summed.
        width: tokens that each takes of the step's token budget.
        log: where token times can be read, when they are kept.
    """

    step: int
    count: int
    context: int
    width: int
    log: StepLog | None

    def add(self, job: Job) -> None:
        """Take in a sequence that has its first token and wants more."""

    def drop(self, job: Job) -> None:
        """Take a sequence out and write down how far it came and what it took on the way."""

    def opens(self, job: Job) -> int:
        """New blocks that this sequence needs in the next step."""

    def state(self, job: Job) -> tuple[int, int]:
        """(tokens in its cache, blocks taken since it came that are not in ``own_blocks``)."""

    def blocks(self, steps: int) -> int:
        """New blocks that the group needs in the next ``steps`` steps."""

    def steps_ahead(self, free: int) -> int:
        """Steps until a sequence ends, fewer where ``free`` blocks do not last so long, maybe 0."""

    def advance(self, steps: int) -> list[Job]:
        """Do so many steps; returns the sequences that ended, taken out."""


class Decoders:
    """Plain decoding: one token per sequence and step (see ``Group``)."""

    __slots__ = (
        "_block",
        "_ending",
        "_openers",
        "_order",
        "context",
        "count",
        "log",
        "step",
        "width",
    )

    def __init__(self, block_tokens: int) -> None:
        self.log: StepLog | None = None
        self.step = self.count = self.context = self._order = 0
        self.width = 1
        self._block = block_tokens
        self._ending: list[tuple[int, int, int, Job]] = []
        self._openers = [0] * block_tokens

    def add(self, job: Job) -> None:
        """Take in a sequence that has its first token and wants more."""
        step = self.step
        self._order += 1
        job.enter(step)
        heappush(self._ending, (step + job.output - job.generated, self._order, job.ticket, job))
        self._openers[(step - job.computed) % self._block] += 1
        self.count += 1
        self.context += job.computed

    def drop(self, job: Job) -> None:
        """Take a sequence out and write down how far it came and what it took on the way."""
        done = self.step - job.start_step
        block, before = self._block, job.computed
        self._openers[(job.start_step - before) % block] -= 1
        job.computed = before + done
        job.own_blocks += (before + done + block - 1) // block - (before + block - 1) // block
        job.generated += done
        job.ticket = 0
        if done and job.bursts is not None:
            job.bursts.append((self.log, job.start_step, self.step, 1))
        self.count -= 1
        self.context -= job.computed

    def opens(self, job: Job) -> int:
        """New blocks that this sequence needs in the next step."""
        return int((job.computed + self.step - job.start_step) % self._block == 0)

    def state(self, job: Job) -> tuple[int, int]:
        """(tokens in its cache, blocks taken since it came)."""
        before, block = job.computed, self._block
        tokens = before + self.step - job.start_step
        return tokens, (tokens + block - 1) // block - (before + block - 1) // block

    def blocks(self, steps: int) -> int:
        """New blocks that the group needs in the next ``steps`` steps."""
        openers, block = self._openers, self._block
        start = self.step % block
        if steps == 1:
            return openers[start]
        cycles, rest = divmod(steps, block)
        end = start + rest
        part = sum(openers[start:end])
        if end > block:
            part += sum(openers[: end - block])
        return cycles * self.count + part

    def steps_ahead(self, free: int) -> int:
        """Steps until a sequence ends, fewer where ``free`` blocks do not last so long, maybe 0."""
        ending = self._ending
        while ending[0][3].ticket != ending[0][2]:
            heappop(ending)  # It left before its end.
        steps = ending[0][0] - self.step
        if self.count * (steps // self._block + 1) <= free or self.blocks(steps) <= free:
            return steps
        low, high = 0, steps
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.blocks(middle) <= free else (low, middle)
        return low

    def advance(self, steps: int) -> list[Job]:
        """Do so many steps; returns the sequences that ended, taken out."""
        self.step += steps
        self.context += steps * self.count
        ending, out = self._ending, []
        while ending and ending[0][0] <= self.step:
            _, _, ticket, job = heappop(ending)
            if job.ticket == ticket:
                self.drop(job)
                out.append(job)
        return out
