"""The KV blocks of one engine with its prefix cache, by vLLM's rules, counted in runs of blocks.

Rules (vLLM 0.32, v1/core/block_pool.py and kv_cache_manager.py): only full blocks are cached; a
hit is the longest chain of cached blocks and leaves at least the last token to compute; a block
that somebody holds is never evicted; released blocks without a hash are reused first, those with
one in the order of their release, the tail of a request before its beginning; a second copy of a
cached block stays its owner's own.

Blocks of one trace hash are kept together as an ``Extent``: the tail of an extent is always
evicted first, so that its remainder is a prefix and a count describes it. Where vLLM would find a
second copy of an evicted block, this pool does not. A reply's blocks are never found here, because
traces name the blocks of prompts only; vLLM finds them when the next turn's prompt holds the reply.
All else is compared with vLLM's own scheduler in tests/engine/test_scheduler_differential.py.
"""

from __future__ import annotations

from collections import OrderedDict

from turbo_lab.sim.job import Job


class Extent:
    """``blocks`` consecutive full blocks of one trace hash (``key`` None: nobody can hit them)."""

    __slots__ = ("blocks", "holders", "key")

    def __init__(self, key: int | None, blocks: int, holders: int) -> None:
        self.key = key
        self.blocks = blocks
        self.holders = holders


class BlockPool:
    """Blocks of one replica.

    Attributes:
        total: blocks that requests can have (vLLM's one for padding is not among them).
        free: blocks that may be handed out, cached ones that nobody holds included.
        blank: those of them that hold nothing; they go first.
        cached: hash to extent.
        idle: extents that nobody holds, next victim first.
    """

    __slots__ = ("blank", "block_tokens", "cached", "free", "idle", "prefix_cache", "total")

    def __init__(self, blocks: int, *, block_tokens: int, prefix_cache: bool = True) -> None:
        self.total = self.free = self.blank = blocks
        self.block_tokens = block_tokens
        self.prefix_cache = prefix_cache
        self.cached: dict[int, Extent] = {}
        self.idle: OrderedDict[Extent, None] = OrderedDict()

    def take(self, blocks: int) -> None:
        """Hand out blocks; the caller made sure that so many are free."""
        self.free -= blocks
        if blocks <= self.blank:
            self.blank -= blocks
            return
        blocks -= self.blank
        self.blank = 0
        idle = self.idle
        while blocks:
            victim = next(iter(idle))
            if victim.blocks > blocks:
                victim.blocks -= blocks
                return
            blocks -= victim.blocks
            victim.blocks = 0
            del idle[victim]
            if victim.key is not None:
                del self.cached[victim.key]

    def lookup(self, job: Job) -> tuple[int, list[Extent], int]:
        """(blocks hit, extents hit, blocks of them that nobody holds) for a job to be admitted."""
        most = (job.prompt + job.generated - 1) // self.block_tokens
        hit, free, found = 0, 0, []
        each = self._blocks_per_key(job)
        for key in self._keys(job):
            extent = self.cached.get(key)
            if extent is None or hit == most:
                break
            found.append(extent)
            free += 0 if extent.holders else extent.blocks
            hit += min(extent.blocks, most - hit)
            if extent.blocks < each:
                break
        kept = job.kept
        if kept is not None and kept.blocks and hit < most and len(found) == len(job.extents):
            found.append(kept)
            free += kept.blocks
            hit += min(kept.blocks, most - hit)
        return hit, found, free

    def hold(self, job: Job, found: list[Extent], hit: int) -> None:
        """Take hold of what ``lookup`` found."""
        job.extents = []
        for extent in found:
            if not extent.holders:
                del self.idle[extent]
                self.free -= extent.blocks
            if extent.key is None:  # Its own, from before a preemption.
                used = min(extent.blocks, hit)
                self.give_back(extent.blocks - used)
                job.own_blocks += used
                extent.blocks = 0
            else:
                extent.holders += 1
                job.extents.append(extent)
                hit -= extent.blocks
        job.kept = None

    def register(self, job: Job, *, past: int = 0) -> None:
        """Cache the prompt blocks that are full by now, for others to hit; ``past`` tokens were."""
        each, full = self._blocks_per_key(job), min(job.computed, job.prompt) // self.block_tokens
        first = past // (each * self.block_tokens)
        for place, key in enumerate(self._keys(job)[first:], start=first):
            wanted = min(each, full - place * each)
            if wanted <= 0:
                return
            extent = self.cached.get(key)
            if extent is None:
                extent = self.cached[key] = Extent(key, 0, 1)
                job.extents.append(extent)
            grown = wanted - extent.blocks
            if 0 < grown <= job.own_blocks and extent in reversed(job.extents):
                extent.blocks += grown
                job.own_blocks -= grown

    def release(self, job: Job, *, keep: bool = False) -> None:
        """Give back all that a job holds, tail first. ``keep``: it was preempted and may return."""
        if self.prefix_cache:
            held = sum(e.blocks for e in job.extents) if job.extents else 0
            full = max(0, min(job.own_blocks, job.computed // self.block_tokens - held))
        else:
            full = 0
        self.give_back(job.own_blocks - full)
        job.own_blocks = 0
        if full:
            self._put_idle(full, job if keep else None)
        for extent in reversed(job.extents):
            extent.holders -= 1
            if not extent.holders:
                self.idle[extent] = None
                self.free += extent.blocks
        if not keep:
            job.extents = []

    def give_back(self, blocks: int) -> None:
        """Return blocks that hold nothing."""
        self.blank += blocks
        self.free += blocks

    def _put_idle(self, blocks: int, keeper: Job | None) -> None:
        self.free += blocks
        if keeper is not None:
            keeper.kept = Extent(None, blocks, 0)
            self.idle[keeper.kept] = None
            return
        idle = self.idle
        if idle:
            last = next(reversed(idle))
            if last.key is None and last.holders == -1:
                last.blocks += blocks
                return
        self.idle[Extent(None, blocks, -1)] = None

    def _blocks_per_key(self, job: Job) -> int:
        return max(1, job.request.block_tokens // self.block_tokens)

    def _keys(self, job: Job) -> tuple[int, ...]:
        """One key per extent: a trace block that is larger than ours, or the last of a block."""
        ids, size = job.request.block_ids, job.request.block_tokens
        if not ids or not self.prefix_cache:
            return ()
        if size >= self.block_tokens:
            return ids
        each = self.block_tokens // size
        return ids[each - 1 :: each]
