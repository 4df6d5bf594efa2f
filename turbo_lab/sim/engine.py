"""What one simulated engine is: a calibration, its limits, and how it schedules."""

from __future__ import annotations

from dataclasses import dataclass

from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.clock import StepClock
from turbo_lab.sim.decoders import Decoders
from turbo_lab.sim.job import Job
from turbo_lab.sim.waiting import make_queue


@dataclass(frozen=True)
class Engine:
    """Settings of every replica.

    Attributes:
        calibration: step costs and limits (``dataclasses.replace`` changes a limit).
        policy: order of the waiting queue: ``fcfs``, ``priority`` or ``fair`` (to tenants).
        prefix_cache: whether prompts share cached blocks.
        jump: jump over runs of equal steps; False does each, with the same result.
    """

    calibration: Calibration
    policy: str = "fcfs"
    prefix_cache: bool = True
    jump: bool = True

    def __post_init__(self) -> None:
        """Refuse what no engine would start with."""
        make_queue(self.policy)

    @property
    def cache_tokens(self) -> int:
        """Tokens that its KV cache holds; vLLM keeps one block of the pool empty."""
        return (self.calibration.blocks - 1) * self.calibration.block_tokens

    def fits(self, job: Job) -> bool:
        """Whether a request can be served at all; a server refuses the others."""
        return job.prompt + job.output - 1 <= self.cache_tokens

    def clock(self) -> StepClock:
        """Its step costs."""
        return StepClock(self.calibration)

    def decoders(self, step: int = 0) -> Decoders:
        """An empty group of decoding sequences that counts its steps from ``step``."""
        out = Decoders(self.calibration.block_tokens)
        out.step = step
        return out
