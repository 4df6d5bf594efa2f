"""One engine, step by step, by vLLM's scheduling rules; runs of equal decode steps are jumped.

A step (vLLM 0.32, v1/core/sched/scheduler.py) first serves the running requests in the order of
their admission: decoding ones take their tokens, one that is still in its prompt takes what the
token budget leaves. If a block is missing, the request admitted last is preempted (by priority:
the least important): its blocks are free, it starts again at the head of the queue. Only in steps
without a preemption are waiting requests admitted, in order, while tokens, sequences and blocks
last; the first that does not fit ends the round, and a prompt must fit as a whole.
At most one running request is in its prompt, and it was admitted last.
"""

from __future__ import annotations

from collections.abc import Callable

from turbo_lab.sim.block_pool import BlockPool
from turbo_lab.sim.clock import NEVER, run_fs, steps_until
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.job import Job
from turbo_lab.sim.step_log import StepLog
from turbo_lab.sim.waiting import make_queue

Sink = Callable[[Job, int], None]


class Replica:
    """An engine's state between two events.

    Attributes:
        end_fs: when the work that it does now ends; NEVER when idle.
        steps: decode steps of that work; more than 1 only without prompts in it.
        load: requests in it. prompt_load: prompt tokens that they still must compute.
        sending: requests that left for another replica, whose blocks are still being read.
    """

    __slots__ = (
        "_jump", "_limit", "_paid", "_policy_fcfs", "_sequences", "_start_fs", "busy_fs", "clock",
        "decoders", "end_fs", "engine", "load", "log", "on_finish", "on_prefilled", "partial",
        "pool", "preemptions", "prefilled", "prompt_load", "running", "sending", "step_growth_fs",
        "step_length_fs", "steps", "tag", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        engine: Engine,
        *,
        on_finish: Sink,
        on_prefilled: Callable[[Job, int], bool] | None = None,
        keep_steps: bool = False,
        tag: int = 0,
    ) -> None:
        self.engine, self.tag = engine, tag
        self.clock = engine.clock()
        calibration = engine.calibration
        self._sequences = calibration.max_sequences
        self._limit = calibration.max_batched_tokens
        self._policy_fcfs = engine.policy != "priority"
        self._jump = engine.jump
        self.on_finish, self.on_prefilled = on_finish, on_prefilled
        self.log = StepLog() if keep_steps else None
        self.preemptions = self.busy_fs = 0
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
        self.decoders = self.engine.decoders(step)
        self.waiting = make_queue(self.engine.policy)
        self.running: dict[Job, None] = {}
        self.partial: Job | None = None
        self.prefilled: list[Job] = []
        self.sending: dict[Job, None] = {}
        self.load = self.prompt_load = self._paid = 0
        self._start_fs = self.step_length_fs = self.step_growth_fs = self.steps = 0
        self.end_fs = NEVER

    def submit(self, job: Job, now_fs: int) -> None:
        """A request arrives; it fits (see ``Engine.fits``)."""
        job.replica = self.tag
        self.load += 1
        self.prompt_load += job.prompt
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
        self._schedule(now)

    def _end_decoding(self, job: Job, now: int) -> None:
        job.last_fs = now
        if job.bursts is not None:
            job.bursts.append((self.log, job.start_step, self.decoders.step))
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
                job.bursts.append((None, now, 1))
            if not job.generated:
                job.first_fs = now
            job.generated += 1
            job.last_fs = now
            if job.generated == job.output:
                self._leave(job)
                self.on_finish(job, now)
            elif self.on_prefilled is None or not self.on_prefilled(job, now):
                self.decoders.add(job)

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

    def _fill_step(self) -> tuple[int, int]:
        """Prompt tokens of the next step: (query-key pairs, tokens)."""
        decoders, pool = self.decoders, self.pool
        may_admit = not self._make_room()
        self._paid = decoders.blocks(1)
        pool.take(self._paid)
        budget = self._limit - decoders.count * decoders.width
        pairs = tokens = 0
        if self.partial is not None:
            tokens, pairs = self._compute(self.partial, budget)
            if not tokens:
                self._preempt(self.partial)
                may_admit = False
        if may_admit:
            waiting, running = self.waiting, self.running
            while waiting and tokens < budget and len(running) < self._sequences:
                job = waiting.head()
                if not self._admit(job):
                    break
                waiting.pop()
                running[job] = None
                if job.ready:
                    budget -= self._join(job)
                else:
                    more, extra = self._compute(job, budget - tokens)
                    tokens += more
                    pairs += extra
        return pairs, tokens

    def _compute(self, job: Job, budget: int) -> tuple[int, int]:
        """Give a prompt its tokens of this step: (tokens, pairs); (0, 0) without blocks for it."""
        past, left = job.computed, job.prompt + job.generated - job.computed
        tokens = left if left < budget else budget
        block = self.pool.block_tokens
        need = (past + tokens + block - 1) // block - (past + block - 1) // block
        if need > self.pool.free:
            return 0, 0
        self.pool.take(need)
        job.own_blocks += need
        job.computed = past + tokens
        self.prompt_load -= tokens
        if job.request.block_ids:
            self.pool.register(job, past=past)
        if tokens == left:
            self.prefilled.append(job)
            self.partial = None
        else:
            self.partial = job
        return tokens, tokens * past + tokens * (tokens + 1) // 2

    def _admit(self, job: Job) -> bool:
        """Take hold of cached blocks, if the whole prompt fits; False if it does not."""
        pool, total = self.pool, job.prompt + job.generated
        need = (total + pool.block_tokens - 1) // pool.block_tokens
        if not (job.request.block_ids or job.kept):
            if need > pool.free:
                return False
        else:
            hit, found, idle = pool.lookup(job) if pool.prefix_cache else (0, [], 0)
            if need - hit + idle > pool.free:
                return False
            pool.hold(job, found, hit)
            job.computed = hit * pool.block_tokens
            self.prompt_load -= job.computed
            if not job.admitted:
                job.hit_tokens = job.computed
        job.admitted = True
        return True

    def _join(self, job: Job) -> int:
        """Let a request whose keys and values arrived decode from this step on."""
        pool, decoders = self.pool, self.decoders
        ready, job.ready = job.prompt + job.generated - 1, False
        block = pool.block_tokens
        need = (ready + block - 1) // block - job.computed // block
        pool.take(need)
        job.own_blocks += need
        self.prompt_load -= job.prompt + job.generated - job.computed
        job.computed = ready
        if job.request.block_ids:
            pool.register(job)
        decoders.add(job)
        opens = decoders.opens(job)
        pool.take(opens)
        self._paid += opens
        return decoders.width

    def _make_room(self) -> bool:
        """Preempt until the decoding sequences have their blocks; whether any was."""
        before = self.preemptions
        while self.decoders.count and self.decoders.blocks(1) > self.pool.free:
            self._preempt(self._victim())
        return self.preemptions > before

    def _victim(self) -> Job:
        if self._policy_fcfs:
            return next(reversed(self.running))
        return max(self.running, key=lambda job: (job.request.priority, job.sent_fs, job.index))

    def _preempt(self, job: Job) -> None:
        self.preemptions += 1
        job.preemptions += 1
        del self.running[job]
        if job is self.partial:
            self.partial = None
            self.prompt_load -= job.prompt + job.generated - job.computed
        else:
            first = job.start_step
            self.decoders.drop(job)
            if job.bursts is not None and self.decoders.step > first:
                job.bursts.append((self.log, first, self.decoders.step))
        self.pool.release(job, keep=True)
        job.computed = 0
        self.prompt_load += job.prompt + job.generated
        self.waiting.push_back(job)
