"""Blocks, tokens and concurrency of a cache pool, exact to the token for one vLLM version."""

from __future__ import annotations

from dataclasses import dataclass

from turbo_lab.core.errors import UsageError
from turbo_lab.core.units import GiB
from turbo_lab.estimate.deployment import Deployment
from turbo_lab.estimate.groups import Group, group_layers
from turbo_lab.estimate.law import Law, law_for
from turbo_lab.estimate.pages import cache_layers
from turbo_lab.models.spec import ModelSpec


@dataclass(frozen=True)
class Pool:
    """The pool's structure for one longest length; independent of its size.

    ``bytes_per_block``: one block on each pipeline stage (largest group).
    ``blocks_per_request``: blocks that a request of ``max_len`` tokens takes, for each group.
    """

    law: Law
    max_len: int
    groups: tuple[Group, ...]
    bytes_per_block: tuple[int, ...]
    blocks_per_request: tuple[int, ...]

    @property
    def required_bytes(self) -> int:
        """Bytes that one request of ``max_len`` tokens needs on the fullest stage."""
        return sum(self.blocks_per_request) * max(self.bytes_per_block, default=0)


@dataclass(frozen=True)
class Capacity:
    """What a pool of a given size holds. ``tokens`` is the number of vLLM's start-up line.

    ``fits``: one request of ``max_len`` tokens can be served. ``longest_len``: the longest
    request that can (never above ``max_len``).
    """

    pool: Pool
    blocks: int
    tokens: int
    max_concurrency: float
    fits: bool
    longest_len: int

    @property
    def required_gib(self) -> float:
        """GiB that one request of ``max_len`` tokens needs on the fullest stage."""
        return self.pool.required_bytes / GiB


def pool_layout(
    spec: ModelSpec,
    *,
    max_len: int,
    deployment: Deployment | None = None,
    law: Law | str | None = None,
) -> Pool:
    """Groups, pages and blocks per request. Raises UsageError for an impossible deployment."""
    if max_len < 1:
        raise UsageError(f"max_len is {max_len}; allowed: whole numbers from 1.")
    chosen = law if isinstance(law, Law) else law_for(law)
    setup = deployment or Deployment()
    groups = group_layers(cache_layers(spec, setup, law=chosen, max_len=max_len))
    stages = range(setup.pipeline_parallel)
    return Pool(
        law=chosen,
        max_len=max_len,
        groups=groups,
        bytes_per_block=tuple(max(g.bytes_per_block(stage=s) for g in groups) for s in stages)
        if groups
        else (),
        blocks_per_request=_request_blocks(groups, setup, chosen, length=max_len),
    )


def _request_blocks(
    groups: tuple[Group, ...], setup: Deployment, law: Law, *, length: int
) -> tuple[int, ...]:
    batches = setup.concurrent_batches(counted=law.counts_batches)
    in_flight = batches * setup.max_batched_tokens
    return tuple(g.blocks_per_request(length=length, in_flight=in_flight) for g in groups)


def capacity(
    spec: ModelSpec,
    *,
    kv_cache_bytes: int | tuple[int, ...],
    max_len: int,
    deployment: Deployment | None = None,
    law: Law | str | None = None,
) -> Capacity:
    """What ``kv_cache_bytes`` of cache on each rank hold.

    Blocks are ``min over ranks of bytes // bytes_per_block``; concurrency is
    ``blocks / sum of blocks per request``; the token line depends on the law. Source: vLLM's
    ``get_kv_cache_configs`` and ``get_kv_cache_capacity``.

    Args:
        spec: the model.
        kv_cache_bytes: bytes for the cache on every rank, or one number per pipeline stage (the
            smallest of its ranks).
        max_len: longest request, prompt and reply together (``--max-model-len``).
        deployment: the engine's settings.
        law: a vLLM version, or a Law; the latest when None.

    Raises:
        UsageError: for a negative size or an impossible deployment.
    """
    setup = deployment or Deployment()
    pool = pool_layout(spec, max_len=max_len, deployment=setup, law=law)
    sizes = _per_stage(kv_cache_bytes, setup.pipeline_parallel)
    if not pool.groups:
        return Capacity(pool, 1, 0, float("inf"), True, max_len)
    used = [(s, b) for s, b in zip(sizes, pool.bytes_per_block, strict=True) if b]
    blocks = min(size // block for size, block in used)
    concurrency = blocks / sum(pool.blocks_per_request)
    if not pool.law.windows:
        concurrency = blocks * pool.groups[0].block_tokens / max_len
    longest = _longest(pool, setup, used)
    return Capacity(
        pool=pool,
        blocks=blocks,
        tokens=_token_line(pool, blocks, concurrency),
        max_concurrency=concurrency,
        fits=longest >= max_len,
        longest_len=longest,
    )


def _per_stage(size: int | tuple[int, ...], stages: int) -> tuple[int, ...]:
    sizes = (size,) * stages if isinstance(size, int) else tuple(size)
    if len(sizes) != stages:
        raise UsageError(f"kv_cache_bytes has {len(sizes)} sizes for {stages} pipeline stages.")
    if min(sizes) < 0:
        raise UsageError(f"kv_cache_bytes is {min(sizes)}; allowed: from 0.")
    return sizes


def _token_line(pool: Pool, blocks: int, concurrency: float) -> int:
    if pool.law.token_line == "requests":
        return int(concurrency * pool.max_len)
    smallest = min(group.block_tokens for group in pool.groups)
    if pool.law.token_line == "blocks":
        return blocks * smallest
    return blocks // len(pool.groups) * smallest


def _longest(pool: Pool, setup: Deployment, used: list[tuple[int, int]]) -> int:
    """Longest length up to ``max_len`` whose blocks fit every stage, by bisection."""
    held = 1 if pool.law.keeps_null_block else 0
    room = min(size // block - held for size, block in used)

    def fits(length: int) -> bool:
        return sum(_request_blocks(pool.groups, setup, pool.law, length=length)) <= room

    if not fits(1):
        return 0
    low, high = 1, pool.max_len
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
