"""Capacity planning: how many conversations of one length a card holds beside the weights."""

from __future__ import annotations

from dataclasses import dataclass

from turbo_lab.core.errors import UsageError
from turbo_lab.core.units import GiB
from turbo_lab.estimate.budget import Budget, memory_budget
from turbo_lab.estimate.capacity import capacity, pool_layout
from turbo_lab.estimate.deployment import Deployment
from turbo_lab.models.spec import ModelSpec
from turbo_lab.models.weights import weight_bytes


@dataclass(frozen=True)
class Plan:
    """What fits. Pairs are (low, high): the part of the budget that only a start can measure.

    ``users``: conversations of ``context_tokens`` tokens at once, whole blocks counted.
    ``cached_tokens``: tokens of the pool. ``conversation_bytes``: blocks of one conversation.
    """

    budget: Budget
    context_tokens: int
    conversation_bytes: int
    users: tuple[int, int]
    cached_tokens: tuple[int, int]

    @property
    def limit(self) -> str:
        """What stops the next user: ``weights`` (no room for a cache), ``cache`` or ``nothing``.

        ``nothing``: the model keeps no cache, so memory sets no limit.
        """
        if self.budget.kv_bytes[1] <= 0:
            return "weights"
        return "cache" if self.conversation_bytes else "nothing"


def plan(
    spec: ModelSpec,
    *,
    card_gib: float,
    context_tokens: int,
    deployment: Deployment | None = None,
    utilization: float = 0.92,
    work_gib: float | None = None,
) -> Plan:
    """How many conversations of ``context_tokens`` tokens fit on one card (or one rank of several).

    ``card * utilization - weights - work space`` is the pool; a conversation takes whole blocks.

    Args:
        spec: the model.
        card_gib: memory of one card.
        context_tokens: prompt and reply of each conversation, at least 1.
        deployment: the engine's settings (number format of the cache, parallelism, ...).
        utilization: share of the card that the engine may take.
        work_gib: everything beside weights and cache (activations, graphs, the driver's own) where
            a start-up log has told it; None takes the band of published logs.

    Raises:
        UsageError: for impossible settings, or weights in a format that has no rule here.
    """
    setup = deployment or Deployment()
    weights = weight_bytes(
        spec, tensor_parallel=setup.tensor_parallel, pipeline_parallel=setup.pipeline_parallel,
        dtype=setup.dtype,
    )  # fmt: skip
    if weights is None:
        raise UsageError(
            f"the weight format {spec.quantization!r} of {spec.name} has no rule here; "
            "see turbo-lab estimate --list for models that have one."
        )
    known = {} if work_gib is None else {"non_torch_bytes": 0, "graphs_bytes": 0}
    budget = memory_budget(
        total_bytes=int(card_gib * GiB),
        weights_bytes=weights.per_rank,
        utilization=utilization,
        activation_bytes=None if work_gib is None else int(work_gib * GiB),
        **known,
    )
    low, high = (_held(spec, room, context_tokens, setup) for room in budget.kv_bytes)
    layout = pool_layout(spec, max_len=context_tokens, deployment=setup)
    return Plan(
        budget=budget,
        context_tokens=context_tokens,
        conversation_bytes=layout.required_bytes,
        users=(low[0], high[0]),
        cached_tokens=(low[1], high[1]),
    )


def _held(
    spec: ModelSpec, room_bytes: int, context_tokens: int, setup: Deployment
) -> tuple[int, int]:
    """(users, tokens) of a pool of this size; nothing for a negative one."""
    found = capacity(
        spec, kv_cache_bytes=max(0, room_bytes), max_len=context_tokens, deployment=setup
    )
    each = sum(found.pool.blocks_per_request)
    if not each:
        return 0, 0
    spare = 1 if found.pool.law.keeps_null_block else 0
    return max(0, found.blocks - spare) // each, found.tokens


def format_gain(
    spec: ModelSpec, *, kv_dtype: str, context_tokens: int, kv_cache_bytes: int
) -> float:
    """How many times more conversations a pool of one size holds in another number format.

    Maximum concurrency at ``context_tokens`` with ``kv_dtype`` over that with the checkpoint's own
    dtype; 1.0 means that nothing is gained. Raises UsageError for a format the model cannot have.
    """
    counts = [
        capacity(
            spec,
            kv_cache_bytes=kv_cache_bytes,
            max_len=context_tokens,
            deployment=Deployment(kv_dtype=kind),
        ).max_concurrency
        for kind in ("auto", kv_dtype)
    ]
    if not counts[0]:
        raise UsageError(
            f"kv_cache_bytes is {kv_cache_bytes:,}; not even one block of {spec.name} fits."
        )
    return counts[1] / counts[0]
