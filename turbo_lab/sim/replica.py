"""One engine and its events: a request arrives, a step or a run of equal decode steps ends.

A run of decode steps is one event. It ends with the first sequence, with the blocks, or, when a
request arrives that might be admitted, with the step that is under way.
"""

from __future__ import annotations

from collections.abc import Callable

from turbo_lab.sim.block_pool import BlockPool
from turbo_lab.sim.clock import NEVER, run_fs, steps_until
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.job import Job
from turbo_lab.sim.step_filler import StepFiller
from turbo_lab.sim.step_log import StepLog
from turbo_lab.sim.waiting import make_queue

Sink = Callable[[Job, int], None]


class Replica(StepFiller):
    """An engine's state between two events.

    Attributes:
        end_fs: when the work that it does now ends; NEVER when idle.
        steps: decode steps of that work; more than 1 only without prompts in it.
        load: requests in it. prompt_load: prompt tokens that they still must compute.
        sending: requests that left for another replica, whose blocks are still being read.
        only_prompts: whether a request leaves with its first token (a prefill replica).
        epoch: how often it failed.
    """

    __slots__ = (
        "_by_priority", "_jump", "_limit", "_paid", "_sequences", "_start_fs", "busy_fs", "clock",
        "decoders", "end_fs", "engine", "epoch", "leaving", "load", "log", "on_finish", "on_leave",
        "only_prompts", "partial", "pool", "preemptions", "prefilled", "prompt_load", "running",
        "sending", "step_growth_fs", "step_length_fs", "steps", "tag", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        engine: Engine,
        *,
        on_finish: Sink,
        keep_steps: bool = False,
        tag: int = 0,
    ) -> None:
        self.engine, self.tag = engine, tag
        self.clock = engine.clock()
        calibration = engine.calibration
        self._sequences = calibration.max_sequences
        self._limit = calibration.max_batched_tokens
        self._by_priority = engine.policy == "priority"
        self._jump = engine.jump
        self.on_finish = on_finish
        self.on_leave: Callable[[Replica, Job, int], None] | None = None
        self.only_prompts = False
        self.log = StepLog() if keep_steps else None
        self.preemptions = self.busy_fs = self.epoch = 0
        self.reset()

    def reset(self) -> None:
        """Empty, as after a start."""
        calibration = self.engine.calibration
        self.pool = BlockPool(
            calibration.blocks,
            block_tokens=calibration.block_tokens,
            prefix_cache=self.engine.prefix_cache,
        )
        step = self.decoders.step if hasattr(self, "decoders") else 0
        self.decoders = self.engine.decoders(step=step, log=self.log)
        self.waiting = make_queue(self.engine.policy)
        self.running: dict[Job, None] = {}
        self.partial: Job | None = None
        self.prefilled: list[Job] = []
        self.sending: dict[Job, None] = {}
        self.leaving: list[Job] = []
        self.load = self.prompt_load = self._paid = 0
        self._start_fs = self.step_length_fs = self.step_growth_fs = self.steps = 0
        self.end_fs = NEVER

    def submit(self, job: Job, now_fs: int) -> None:
        """A request arrives; it fits (see ``Engine.fits``)."""
        job.replica = self.tag
        self.load += 1
        self.prompt_load += job.prompt + job.generated
        waiting = self.waiting
        waiting.push(job)
        if self.end_fs == NEVER:
            self._schedule(now_fs)
        elif len(self.running) < self._sequences and (len(waiting) == 1 or not waiting.in_order):
            self.interrupt(now_fs)  # Else it changes nothing before the next sequence ends.

    def interrupt(self, now_fs: int) -> None:
        """End a run of steps with the step that is under way at this time."""
        if self.steps > 1:
            length, growth = self.step_length_fs, self.step_growth_fs
            steps = steps_until(now_fs - self._start_fs, length, growth)
            if steps < self.steps:
                self.steps = steps
                self.end_fs = self._start_fs + run_fs(steps, length, growth)

    def complete(self) -> None:
        """Take in what the work brought that ends now, and schedule the next."""
        now, steps, decoders = self.end_fs, self.steps, self.decoders
        self.busy_fs += now - self._start_fs
        first = decoders.step
        if self.log is not None:
            self.log.add(first, self._start_fs, self.step_length_fs, self.step_growth_fs, steps)
        if decoders.count:
            need = decoders.blocks(steps) - self._paid
            if need:
                self.pool.take(need)
            self._paid = 0
            for job in decoders.advance(steps):
                self._end_decoding(job, now)
        else:
            decoders.step = first + steps
        if self.prefilled:
            self._end_prompts(now)
        if self.leaving:
            self._let_go(now)
        self._schedule(now)

    def _end_decoding(self, job: Job, now: int) -> None:
        job.last_fs = now
        self._leave(job)
        self.on_finish(job, now)

    def _leave(self, job: Job) -> None:
        del self.running[job]
        self.pool.release(job)
        self.load -= 1

    def _end_prompts(self, now: int) -> None:
        """Prompts that are complete give a token, and decode or end."""
        done, self.prefilled = self.prefilled, []
        for job in done:
            if job.bursts is not None:
                job.bursts.append((None, now, now, 1))
            if not job.generated:
                job.first_fs = now
            job.generated += 1
            job.last_fs = now
            if job.generated == job.output:
                self._leave(job)
                self.on_finish(job, now)
            else:
                self.decoders.add(job)
                if self.only_prompts:
                    self.leaving.append(job)

    def ask_to_leave(self, job: Job, now_fs: int) -> None:
        """Have a decoding request leave with its cache at the end of the step under way."""
        self.leaving.append(job)
        self.interrupt(now_fs)

    def _let_go(self, now: int) -> None:
        """Take out those that leave; their blocks stay until ``sent``."""
        jobs, self.leaving = self.leaving, []
        for job in jobs:
            if job.ticket:  # Else it ended or was preempted meanwhile.
                self.decoders.drop(job)
                del self.running[job]
                self.load -= 1
                self.sending[job] = None
                assert self.on_leave is not None
                self.on_leave(self, job, now)

    def sent(self, job: Job, now_fs: int) -> None:
        """The cache of a request that left has been read: its blocks are free."""
        del self.sending[job]
        self.pool.release(job)
        self.refresh(now_fs)

    def refresh(self, now_fs: int) -> None:
        """Something changed in favour of the waiting ones: look again as soon as possible."""
        if self.waiting:
            if self.end_fs == NEVER:
                self._schedule(now_fs)
            else:
                self.interrupt(now_fs)

    def withdraw(self) -> Job | None:
        """Take out the last in the queue that has computed nothing; None where there is none."""
        job = self.waiting.withdraw()
        if job is not None:
            self.load -= 1
            self.prompt_load -= job.tokens
        return job

    def fail(self) -> list[Job]:
        """Lose everything; returns the requests that were here, in the order of the trace."""
        lost = sorted([*self.running, *self.waiting], key=lambda job: job.index)
        self.epoch += 1
        self.reset()
        return lost

    def _schedule(self, now: int) -> None:
        """Decide on the next step, or on a run of steps."""
        self._start_fs = now
        decoders, preemptions = self.decoders, self.preemptions
        if self.partial is not None or (self.waiting and len(self.running) < self._sequences):
            pairs, tokens = self._fill_step()
        else:
            pairs = tokens = 0
        count = decoders.count
        if not tokens:
            if not count:
                self.end_fs, self.steps = NEVER, 0
                return
            steps = decoders.steps_ahead(self.pool.free + self._paid)
            if not steps:
                self._make_room()
                steps, count = 1, decoders.count
            elif not self._jump or self.preemptions != preemptions:
                steps = 1  # After a preemption the next step may admit again.
        else:
            steps = 1
        clock = self.clock
        length = clock.decode_fs[count] + clock.context_fs * decoders.context
        if tokens:
            length += clock.token_fs * tokens + clock.pair_fs * pairs
        self.step_length_fs = length
        self.step_growth_fs = growth = clock.context_fs * count
        self.steps = steps
        self.end_fs = now + (length if steps == 1 else run_fs(steps, length, growth))
