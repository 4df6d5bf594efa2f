"""What one simulated engine is: a calibration, its limits, and how it schedules."""

from __future__ import annotations

from dataclasses import dataclass

from turbo_lab.core.errors import UsageError
from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.clock import StepClock
from turbo_lab.sim.decoders import Decoders, Group
from turbo_lab.sim.job import Job
from turbo_lab.sim.speculative_decoders import Speculation, SpeculativeDecoders
from turbo_lab.sim.step_log import StepLog
from turbo_lab.sim.waiting import make_queue


@dataclass(frozen=True)
class Engine:
    """Settings of every replica.

    Attributes:
        calibration: step costs and limits (``dataclasses.replace`` changes a limit).
        policy: order of the waiting queue: ``fcfs``, ``priority`` or ``fair`` (to tenants).
        prefix_cache: whether prompts share cached blocks.
        speculation: drafts to check in every decode step; None decodes plainly.
        jump: jump over runs of equal steps; False does each, with the same result.
    """

    calibration: Calibration
    policy: str = "fcfs"
    prefix_cache: bool = True
    speculation: Speculation | None = None
    jump: bool = True

    def __post_init__(self) -> None:
        """Refuse what no engine would start with."""
        make_queue(self.policy)
        limits = self.calibration
        if limits.max_batched_tokens < limits.max_sequences * self.width:
            raise UsageError(
                f"max_batched_tokens is {limits.max_batched_tokens}; {limits.max_sequences} "
                f"sequences of {self.width} tokens a step need "
                f"{limits.max_sequences * self.width} or more"
            )

    @property
    def width(self) -> int:
        """Tokens that a decoding sequence computes in a step."""
        return 1 if self.speculation is None else 1 + len(self.speculation.acceptance)

    @property
    def cache_tokens(self) -> int:
        """Tokens that its KV cache holds."""
        return self.calibration.blocks * self.calibration.block_tokens

    def fits(self, job: Job) -> bool:
        """Whether a request can be served at all; a server refuses the others."""
        return job.prompt + job.output + self.width - 2 <= self.cache_tokens

    def clock(self) -> StepClock:
        """Its step costs."""
        draft_s = self.speculation.draft_s if self.speculation else 0.0
        return StepClock(self.calibration, tokens_per_sequence=self.width, draft_s=draft_s)

    def decoders(self, *, step: int = 0, log: StepLog | None = None) -> Group:
        """An empty group of decoding sequences that counts its steps from ``step``."""
        block = self.calibration.block_tokens
        out: Group = (
            SpeculativeDecoders(block, self.speculation) if self.speculation else Decoders(block)
        )
        out.step, out.log = step, log
        return out
