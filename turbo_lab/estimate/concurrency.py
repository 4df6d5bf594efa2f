"""What concurrency costs: latency and throughput of a closed loop, and its two knees.

``users`` ask again as soon as they are answered, with equal prompts and equal replies. What a round
of all of them costs has a closed form; how it splits into TTFT and TPOT depends on who is in which
step, and is played (``batching.play_users``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.batching import Job, play_users
from turbo_lab.estimate.fit import StepModel


@dataclass(frozen=True)
class ClosedLoop:
    """One load on one engine.

    ``seats``: most requests in a step (``max_num_seqs``). ``input_tokens``, ``output_tokens``: of
    each request. The prompts of one round must fit into one step (``max_num_batched_tokens``).
    """

    model: StepModel
    input_tokens: int
    output_tokens: int
    seats: int

    def __post_init__(self) -> None:
        """Refuse lengths without a pace."""
        if min(self.input_tokens, self.seats) < 1 or self.output_tokens < 2:
            raise UsageError("input_tokens and seats must be at least 1, output_tokens at least 2")

    def service_s(self, users: int) -> float:
        """A request's time on its seat when all with a seat begin together.

        ``t_request + B * t_prompt + (n - 1) * t_decode(B)``, and with company one step more: the
        first to arrive starts a step alone, the others wait for it.
        """
        if users < 1:
            raise UsageError(f"users is {users}, it must be at least 1")
        batch = min(users, self.seats)
        middle = self.input_tokens + self.output_tokens // 2
        decode_s = self.model.decode_s(batch=batch, context_tokens=middle)
        reading_s = batch * self.model.prefill_work_s(tokens=self.input_tokens)
        late_s = self.model.step_s if batch > 1 else 0.0
        return self.model.request_s + reading_s + late_s + (self.output_tokens - 1) * decode_s

    def e2e_s(self, users: int) -> float:
        """Mean time to the last token: ``max(1, users / seats)`` rounds (Little's law)."""
        return max(1.0, users / self.seats) * self.service_s(users)

    def throughput_tok_s(self, users: int) -> float:
        """Output tokens per second: ``users * n / E2E`` (Little's law)."""
        return users * self.output_tokens / self.e2e_s(users)

    def ttft_tpot_s(self, users: int, *, rounds: int = 3) -> tuple[float, float]:
        """Mean TTFT and TPOT over ``rounds`` requests of each user, played step by step."""
        job = Job(self.input_tokens, self.output_tokens)
        times = play_users(job, users=users, rounds=rounds, seats=self.seats, model=self.model)
        outside_s = self.model.request_s - self.model.step_s  # network, client, API process
        gaps = self.output_tokens - 1
        return (
            fmean(t.first_s - t.start_s for t in times) + max(0.0, outside_s),
            fmean((t.end_s - t.first_s) / gaps for t in times),
        )

    def knee_users(self) -> float:
        """Users with the most throughput per second of latency.

        Below the seats E2E is ``a + b * users``, so throughput over E2E is ``users / (a + b
        users)^2`` with its maximum at ``a / b``: there the shared cost of a round equals what the
        users add to it. Beyond the seats throughput is flat, so the knee is never above them.
        Source of the criterion: Kleinrock's power, 1979.
        """
        if self.seats < 3:
            return float(self.seats)
        low, high = self.service_s(2), self.service_s(self.seats)
        slope = (high - low) / (self.seats - 2)
        return min(float(self.seats), (low - 2 * slope) / slope) if slope > 0 else float(self.seats)


def request_blocks(tokens: int, *, block_tokens: int) -> int:
    """Whole blocks that ``tokens`` cached tokens take."""
    if tokens < 1 or block_tokens < 1:
        raise UsageError(f"{tokens} tokens in blocks of {block_tokens}: both must be at least 1")
    return math.ceil(tokens / block_tokens)


@dataclass(frozen=True)
class Pool:
    """A KV pool of ``blocks`` usable blocks, under requests of one length.

    The last token of a reply is never stored: nothing follows that could look at it.
    """

    blocks: int
    block_tokens: int
    prompt_tokens: int
    output_tokens: int

    @property
    def first_blocks(self) -> int:
        """Blocks of a request when it is let in: its prompt."""
        return request_blocks(self.prompt_tokens, block_tokens=self.block_tokens)

    @property
    def last_blocks(self) -> int:
        """Blocks of a request at its end."""
        stored = self.prompt_tokens + self.output_tokens - 1
        return request_blocks(stored, block_tokens=self.block_tokens)

    @property
    def users(self) -> int:
        """The memory knee: requests that fit to their end. ``blocks // last_blocks``."""
        return self.blocks // self.last_blocks

    def preemptions(self, users: int) -> int:
        """Requests thrown out when ``users`` equal ones start together.

        Let in are as many as have room for their prompts; those that do not fit to the end are
        thrown out. They come back when others have ended, and then they fit.
        """
        let_in = min(users, self.blocks // self.first_blocks)
        return max(0, let_in - self.users)
