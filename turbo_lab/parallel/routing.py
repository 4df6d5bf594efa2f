"""Routing of tokens to experts as it happened: top-k, load, capacity, bytes. Numbers only (NumPy).

What uniform routing leads to on average is in ``turbo_lab.estimate.experts``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.parallel.partition import expert_part


@dataclass(frozen=True)
class Routes:
    """Chosen experts [T, k] and their gates [T, k]; an expert of -1 was dropped (gate 0)."""

    experts: np.ndarray
    gates: np.ndarray
    total_experts: int

    @property
    def dropped_share(self) -> float:
        """Share of the token-expert pairs that capacity dropped; 0 without tokens."""
        return float(np.mean(self.experts < 0)) if self.experts.size else 0.0

    def load(self) -> np.ndarray:
        """Tokens of each expert [E]."""
        return np.bincount(self.experts[self.experts >= 0], minlength=self.total_experts)

    def rows_to_ranks(self, *, ranks: int, once_per_rank: bool = False) -> np.ndarray:
        """Rows that go to each rank [n].

        ``once_per_rank``: a token with two experts on one rank is sent once, as DeepEP does.
        """
        owner = np.where(self.experts >= 0, self.experts // (self.total_experts // ranks), -1)
        if once_per_rank:
            return np.array([int(np.any(owner == r, axis=1).sum()) for r in range(ranks)])
        return np.array([int((owner == r).sum()) for r in range(ranks)])


def top_k_routes(logits: np.ndarray, *, k: int) -> Routes:
    """The k best experts of each token, gates softmax over these k.

    Equal logits: the lower expert number, so that every rank decides alike. Source: Mixtral,
    arXiv:2401.04088, section 2. ``logits``: [T, E]. Raises UsageError unless 1 <= k <= E.
    """
    tokens, experts = logits.shape
    if not 1 <= k <= experts:
        raise UsageError(f"k is {k}; allowed: 1 to {experts}, the number of experts.")
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(logits, chosen, axis=1).astype(np.float64)
    weights = np.exp(best - best.max(axis=1, keepdims=True)) if tokens else best
    gates = weights / weights.sum(axis=1, keepdims=True) if tokens else best
    return Routes(chosen, gates, experts)


def even_routes(tokens: int, *, experts: int, k: int) -> Routes:
    """Experts dealt out in turn, gates 1/k: loads differ by one at most.

    No router does this; it is the control that shows what an uneven load costs.
    """
    if not 1 <= k <= experts:
        raise UsageError(f"k is {k}; allowed: 1 to {experts}, the number of experts.")
    chosen = np.arange(tokens * k).reshape(tokens, k) % experts
    return Routes(chosen, np.full((tokens, k), 1.0 / k), experts)


def within_capacity(routes: Routes, *, places: int) -> Routes:
    """Drop what comes too late: each expert takes its first ``places`` pairs in token order.

    First choices of all tokens come before second choices, as in GShard (arXiv:2006.16668). Gates
    of the kept pairs stay as they are: a dropped pair's share is lost, the residual remains.
    """
    kept = np.full_like(routes.experts, -1)
    for expert in range(routes.total_experts):
        tokens, choices = np.nonzero(routes.experts == expert)
        order = np.lexsort((tokens, choices))[:places]
        kept[tokens[order], choices[order]] = expert
    return Routes(kept, np.where(kept >= 0, routes.gates, 0.0), routes.total_experts)


def routed_bytes(routes: Routes, *, ranks: int, hidden: int, element_bytes: int = 4) -> int:
    """Payload of one rank's dispatch: ``kept pairs * H * element``; 0 for one rank.

    The combine brings the same number of bytes back.
    """
    expert_part(routes.total_experts, rank=0, ranks=ranks)
    pairs = int((routes.experts >= 0).sum())
    return pairs * hidden * element_bytes if ranks > 1 else 0


def sent_routed_bytes(
    routes: Routes, *, rank: int, ranks: int, hidden: int, element_bytes: int = 4
) -> int:
    """Part of ``routed_bytes`` that leaves rank ``rank``: pairs whose expert is elsewhere."""
    rows = routes.rows_to_ranks(ranks=ranks)
    return int(rows.sum() - rows[rank]) * hidden * element_bytes
