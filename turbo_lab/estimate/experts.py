"""Expert parallelism in closed form: how unevenly tokens fall on experts, and what that costs.

Letters: T tokens of a batch, E experts, k experts per token. An expert-parallel step waits for the
rank with the most tokens, so its time grows by ``imbalance = max load / mean load``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from turbo_lab.core.errors import UsageError


def imbalance(loads: Sequence[float]) -> float:
    """Largest load over the mean: 1 is even, E means that one expert has everything.

    Raises UsageError where there is no load at all.
    """
    if not loads or min(loads) < 0 or sum(loads) <= 0:
        raise UsageError(f"loads {list(loads)}: at least one must be above 0, none below")
    return max(loads) * len(loads) / sum(loads)


def rank_loads(expert_loads: Sequence[float], *, ranks: int) -> list[float]:
    """Load of each rank when consecutive experts share one. Raises UsageError for uneven shares."""
    experts = len(expert_loads)
    if ranks < 1 or experts % ranks:
        raise UsageError(
            f"{experts} experts cannot be split over {ranks} ranks evenly; allowed: a divisor of "
            f"{experts}"
        )
    each = experts // ranks
    return [sum(expert_loads[r * each : (r + 1) * each]) for r in range(ranks)]


def place_by_load(expert_loads: Sequence[float], *, ranks: int) -> list[list[int]]:
    """Experts of each rank so that the ranks are loaded alike, equally many on each.

    The fullest expert left goes to the emptiest rank with room: good, not always the best.
    Raises UsageError for uneven shares.
    """
    rank_loads(expert_loads, ranks=ranks)
    room = len(expert_loads) // ranks
    placed: list[list[int]] = [[] for _ in range(ranks)]
    totals = [0.0] * ranks
    for expert in sorted(range(len(expert_loads)), key=lambda e: (-expert_loads[e], e)):
        rank = min((r for r in range(ranks) if len(placed[r]) < room), key=lambda r: totals[r])
        placed[rank].append(expert)
        totals[rank] += expert_loads[expert]
    return [sorted(experts) for experts in placed]


def expert_over_tensor(experts_per_token: int, *, ranks: int) -> float:
    """Bytes a layer sends with data-parallel attention and experts, over tensor parallelism.

    ``k / 2n``. Each rank sends its T/n tokens to k experts and gets them back, ``2 k T/n (n-1)/n``
    hidden states; tensor parallelism all-reduces all T twice, ``4 T (n-1)/n``. Uniform routing,
    no merging, all ranks equally many tokens.
    """
    if experts_per_token < 1 or ranks < 2:
        raise UsageError(f"k {experts_per_token}, ranks {ranks}; allowed: 1 or more, 2 or more")
    return experts_per_token / (2 * ranks)


def capacity(
    tokens: int, *, experts: int, experts_per_token: int, capacity_factor: float = 1.0
) -> int:
    """Slots of one expert: ``ceil(factor * T k / E)``. Source: Switch Transformer, 2101.03961."""
    _require(tokens, experts, experts_per_token)
    if not capacity_factor > 0:
        raise UsageError(f"capacity_factor is {capacity_factor}; it must be above 0")
    return math.ceil(capacity_factor * tokens * experts_per_token / experts)


def dropped_share(loads: Sequence[int], *, slots: int) -> float:
    """Share of routed tokens beyond the experts' slots: ``sum(max(0, load - slots)) / sum``."""
    imbalance(loads)
    if slots < 0:
        raise UsageError(f"slots is {slots}; allowed: 0 or more")
    return sum(max(0, load - slots) for load in loads) / sum(loads)


def expected_dropped_share(
    tokens: int, *, experts: int, experts_per_token: int, capacity_factor: float
) -> float:
    """The same under uniform routing: each expert's load is binomial (T, k/E).

    ``E[max(0, load - slots)] * E / (T k)``, exact.
    """
    from scipy.stats import binom

    slots = capacity(
        tokens, experts=experts, experts_per_token=experts_per_token,
        capacity_factor=capacity_factor,
    )  # fmt: skip
    # E[max(0, X - s)] is the sum of P(X > j) for j = s, s+1, ...
    tail = binom.sf(range(slots, tokens), tokens, experts_per_token / experts)
    return float(sum(tail)) * experts / (tokens * experts_per_token)


def expected_max_load(tokens: int, *, experts: int, experts_per_token: int = 1) -> float:
    """Expected load of the fullest expert under uniform routing.

    Loads are taken as independent binomials (T, k/E): ``sum_j (1 - P(load <= j)^E)``. They sum to
    T k, so this is slightly above the exact value (under 1 % where the mean load is 4 or more).
    """
    import numpy as np
    from scipy.stats import binom

    _require(tokens, experts, experts_per_token)
    below = binom.cdf(np.arange(tokens), tokens, experts_per_token / experts)
    return float(np.sum(1 - below**experts))


def expected_imbalance(tokens: int, *, experts: int, experts_per_token: int = 1) -> float:
    """``expected_max_load`` over the mean ``T k / E``; falls towards 1 with larger batches.

    Roughly ``1 + sqrt(2 ln(E) E / (T k))``: even routing is even on average only.
    """
    mean = tokens * experts_per_token / experts
    return expected_max_load(tokens, experts=experts, experts_per_token=experts_per_token) / mean


def expected_active_experts(tokens: int, *, experts: int, experts_per_token: int) -> float:
    """Experts that at least one token of the batch takes: ``E (1 - (1 - k/E)^T)``.

    Their weights are what a decode step reads.
    """
    _require(tokens, experts, experts_per_token)
    return experts * (1 - (1 - experts_per_token / experts) ** tokens)


def dispatch_bytes(
    tokens: int,
    *,
    hidden: int,
    experts_per_token: int,
    ranks: int,
    element_bytes: float = 2,
    merged: bool = True,
) -> float:
    """Payload that leaves a rank when its ``tokens`` are sent to uniformly routed experts.

    Each of the k copies goes to another rank with probability ``(r-1)/r``. ``merged``: a token
    whose experts share a rank is sent there once, so ``(r-1) (1 - (1 - 1/r)^k)`` ranks get it
    (experts drawn independently). Combining sends the same amount back.
    """
    if tokens < 0 or hidden < 1 or experts_per_token < 1 or ranks < 1 or element_bytes <= 0:
        raise UsageError(
            f"tokens {tokens}, hidden {hidden}, experts_per_token {experts_per_token}, ranks "
            f"{ranks}, element_bytes {element_bytes}: counts must be positive"
        )
    if merged:
        copies = (ranks - 1) * (1 - (1 - 1 / ranks) ** experts_per_token)
    else:
        copies = experts_per_token * (ranks - 1) / ranks
    return tokens * hidden * element_bytes * copies


def _require(tokens: int, experts: int, experts_per_token: int) -> None:
    if tokens < 1 or experts < 1 or not 1 <= experts_per_token <= experts:
        raise UsageError(
            f"{tokens} tokens, {experts_per_token} of {experts} experts each; allowed: 1 or more "
            f"tokens, 1 to {experts} experts per token"
        )
