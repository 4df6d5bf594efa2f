"""Decoding with drafts: each step checks k drafted tokens per sequence and keeps a part of them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

from turbo_lab.core.errors import UsageError
from turbo_lab.sim.job import Job
from turbo_lab.sim.step_log import StepLog


@dataclass(frozen=True)
class Speculation:
    """How drafts do.

    Attributes:
        acceptance: for each drafted position, the share of drafts whose tokens were accepted up to
            it (vLLM's accepted tokens per position / drafts); never rising.
        draft_s: seconds that drafting adds to a step.
        seed: of the draws of how many are accepted.
    """

    acceptance: tuple[float, ...]
    draft_s: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse shares outside 0 to 1 or rising ones."""
        rates = self.acceptance
        falling = all(a >= b for a, b in pairwise(rates))
        if not rates or not falling or not all(0 <= r <= 1 for r in rates) or self.draft_s < 0:
            raise UsageError(
                f"acceptance {rates}, draft_s {self.draft_s}; wanted: one share from 0 to 1 per "
                "drafted position, never rising, and a draft time of 0 or more"
            )

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens per sequence and step: 1 + the sum of the shares."""
        return 1 + sum(self.acceptance)


class SpeculativeDecoders:
    """A ``Group`` that is stepped, never jumped: every sequence draws its own luck."""

    __slots__ = (
        "_accept", "_block", "_draw", "_held", "context", "count", "log", "step",
        "width",
    )  # fmt: skip

    def __init__(self, block_tokens: int, speculation: Speculation) -> None:
        self.log: StepLog | None = None
        self.step = self.count = self.context = 0
        self.width = 1 + len(speculation.acceptance)
        self._accept = speculation.acceptance
        self._block = block_tokens
        self._draw = random.Random(speculation.seed).random
        self._held: dict[Job, int] = {}  # blocks that each has room in

    def add(self, job: Job) -> None:
        """Take in a sequence that has its first token and wants more."""
        job.enter(self.step)
        self._held[job] = -(-job.computed // self._block)
        self.count += 1
        self.context += job.computed

    def drop(self, job: Job) -> None:
        """Take a sequence out."""
        del self._held[job]
        job.ticket = 0
        self.count -= 1
        self.context -= job.computed

    def opens(self, job: Job) -> int:
        """New blocks for all tokens that the next step may write, drafts included."""
        need = -(-(job.computed + self.width) // self._block) - self._held[job]
        return need if need > 0 else 0

    def state(self, job: Job) -> tuple[int, int]:
        """(tokens in its cache, 0: its blocks are written down at once)."""
        return job.computed, 0

    def blocks(self, steps: int) -> int:
        """New blocks that the group needs in the next step."""
        return sum(map(self.opens, self._held))

    def steps_ahead(self, free: int) -> int:
        """1, or 0 when the blocks do not last for a step."""
        return int(self.blocks(1) <= free)

    def advance(self, steps: int) -> list[Job]:
        """Do one step; returns the sequences that ended, taken out."""
        self.step += 1
        out = []
        for job in self._held:
            new = self.opens(job)
            job.own_blocks += new
            self._held[job] += new
            luck, tokens = self._draw(), 1
            for rate in self._accept:
                tokens += luck < rate
            tokens = min(tokens, job.output - job.generated)
            job.computed += tokens
            job.generated += tokens
            self.context += tokens
            if job.bursts is not None:
                job.bursts.append((self.log, self.step - 1, self.step, tokens))
            if job.generated == job.output:
                out.append(job)
        for job in out:
            self.drop(job)
        return out
