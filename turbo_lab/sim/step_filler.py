"""What goes into one step, by the rules of vLLM's scheduler.

A step (vLLM 0.32, v1/core/sched/scheduler.py) first serves the running requests in the order of
their admission: decoding ones take their tokens, one that is still in its prompt takes what the
token budget leaves. If a block is missing, the request admitted last is preempted (by priority:
the least important): its blocks are free, it starts again at the head of the queue. Only in steps
without a preemption are waiting requests admitted, in order, while tokens, sequences and blocks
last; the first that does not fit ends the round, and a prompt must fit as a whole.
At most one running request is in its prompt, and it was admitted last.

One rule is left out: by priority, when the request that needs a block is itself the least important
one, vLLM does not serve those behind it in that step; here they go on.
"""

from __future__ import annotations

from turbo_lab.sim.block_pool import BlockPool
from turbo_lab.sim.decoders import Group
from turbo_lab.sim.job import Job
from turbo_lab.sim.waiting import Waiting


class StepFiller:
    """The queue, the running requests and the blocks of a replica, and how a step is filled.

    Attributes:
        running: in the order of their admission.
        partial: the one that is in the middle of its prompt.
        prefilled: those whose prompt ends with the step that was filled last.
        prompt_load: prompt tokens that all requests here still must compute.
    """

    pool: BlockPool
    decoders: Group
    waiting: Waiting
    running: dict[Job, None]
    partial: Job | None
    prefilled: list[Job]
    prompt_load: int
    preemptions: int
    _limit: int
    _sequences: int
    _paid: int
    _by_priority: bool

    def _fill_step(self) -> tuple[int, int]:
        """Prompt tokens of the next step: (query-key pairs, tokens)."""
        decoders, pool = self.decoders, self.pool
        may_admit = not self._make_room()
        self._paid = decoders.blocks(1)
        pool.take(self._paid)
        budget = self._limit - decoders.count * decoders.width
        pairs = tokens = 0
        partial = self.partial
        while partial is not None and not tokens:
            tokens, pairs = self._compute(partial, budget)
            if not tokens:
                may_admit = False
                partial = self._yield_block(partial)
                budget = self._limit - decoders.count * decoders.width
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

    def _yield_block(self, partial: Job) -> Job | None:
        """Preempt for the sake of a prompt; None when that prompt itself had to go."""
        victim = self._victim()
        if victim.ticket:  # It got its block of this step already; that goes back too.
            opened = self.decoders.opens(victim)
            self._paid -= opened
            self.pool.give_back(opened)
        self._preempt(victim)
        return None if victim is partial else partial

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
        if not self._by_priority:
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
            self.decoders.drop(job)
        self.pool.release(job, keep=True)
        job.computed = 0
        self.prompt_load += job.prompt + job.generated
        self.waiting.push_back(job)
