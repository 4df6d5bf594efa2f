"""Expert parallelism: a mixture of experts over several ranks, with two all-to-alls per layer.

The experts are cut out of the model's own MLP: expert e of E keeps the e-th of E equal pieces of
the intermediate columns. All of them together, each with gate 1, are exactly the dense MLP, so a
layer with k = E can be checked against the real model; with k < E it computes less than the model.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.experts import capacity
from turbo_lab.parallel.comm import Comm
from turbo_lab.parallel.partition import even_range, expert_part
from turbo_lab.parallel.routing import (
    Routes,
    even_routes,
    routed_bytes,
    top_k_routes,
    within_capacity,
)
from turbo_lab.parallel.weights import Weights

Tensor = torch.Tensor


@dataclass(frozen=True)
class MoeSettings:
    """How the layer routes.

    ``capacity_factor``: None drops nothing; else places per expert for the tokens of each rank.
    ``scale``: the gates are multiplied by it. With k = E all gates are 1/E, so ``scale = E``
    makes the layer the dense MLP.
    """

    experts: int = 8
    k: int = 2
    capacity_factor: float | None = None
    scale: float = 1.0


class Expert:
    """One expert: SwiGLU over its share of a layer's intermediate columns."""

    def __init__(self, weights: Weights, layer: int, *, columns: range) -> None:
        def rows(part: str) -> Tensor:
            return weights.read(weights.layer(layer, f"mlp.{part}"), rows=columns)

        self.gate, self.up = rows("gate_proj"), rows("up_proj")
        self.down = weights.read(weights.layer(layer, "mlp.down_proj"), columns=columns)

    def __call__(self, rows: Tensor) -> Tensor:
        """[n, H] to [n, H]."""
        inner = functional.silu(functional.linear(rows, self.gate))
        return functional.linear(inner * functional.linear(rows, self.up), self.down)


def seeded_router(hidden: int, *, experts: int, seed: int = 0) -> np.ndarray:
    """Random router weights [E, H], the same on every rank: what routing is before any training."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((experts, hidden)).astype(np.float32) / np.sqrt(hidden)


def clustered_router(activations: np.ndarray, *, experts: int, seed: int = 0) -> np.ndarray:
    """Router weights [E, H] from k-means over real activations [T, H]: similar tokens, one expert.

    The rows are the unit-length centres, so the logits are cosines up to the token's norm.
    """
    from scipy.cluster.vq import kmeans2

    if len(activations) < experts:
        raise UsageError(f"{len(activations)} activations for {experts} experts; more are needed")
    unit = activations / np.linalg.norm(activations, axis=1, keepdims=True)
    centres, _ = kmeans2(unit, experts, minit="++", rng=np.random.default_rng(seed))
    return (centres / np.linalg.norm(centres, axis=1, keepdims=True)).astype(np.float32)


class MoeLayer:
    """An MoE layer over the ranks of ``comm``; alone it is the unsharded layer.

    Every rank routes its own tokens (data parallel), sends each one to the ranks of its experts,
    and gets the results back. Without a router the experts are dealt out in turn (the control of
    an even load). ``last``: facts of the last call (see ``facts``).
    """

    def __init__(
        self,
        weights: Weights,
        layer: int,
        *,
        comm: Comm,
        router: np.ndarray | None,
        settings: MoeSettings,
    ) -> None:
        dense = weights.spec.layers[layer].feed_forward
        width, total = dense.width if dense else 0, settings.experts
        shape, wanted = getattr(router, "shape", None), (total, weights.spec.hidden)
        if width % total or shape not in (None, wanted):
            raise UsageError(
                f"{total} experts out of {width} columns with a router of shape {shape}; "
                f"needed: a divisor of {width} and shape {wanted}"
            )
        self.comm, self.settings = comm, settings
        self.mine = expert_part(total, rank=comm.rank, ranks=comm.size)
        self.experts = [
            Expert(weights, layer, columns=even_range(width, parts=total, part=e))
            for e in self.mine
        ]
        self.router = None if router is None else torch.from_numpy(router).to(comm.device)
        self._experts_s = 0.0
        self.last: Mapping[str, Any] = {}

    def __call__(self, hidden: Tensor) -> Tensor:
        """[..., H] of this rank's tokens to [..., H]. Every rank calls it, also without tokens."""
        rows = hidden.flatten(0, -2)
        routes = self.route(rows)
        # Pairs in the order of their expert, so that the rows for one rank lie together.
        token, choice = np.nonzero(routes.experts >= 0)
        expert = routes.experts[token, choice]
        order = np.argsort(expert, kind="stable")
        token, choice, expert = token[order], choice[order], expert[order]
        index = torch.from_numpy(token).to(rows.device)
        results = self._exchange(rows[index], np.bincount(expert, minlength=routes.total_experts))
        gates = torch.from_numpy(routes.gates[token, choice]).to(rows)
        out = torch.zeros_like(rows).index_add_(0, index, results * gates[:, None])
        self.last = self.facts(routes, rows)
        return out.view(hidden.shape)

    def route(self, rows: Tensor) -> Routes:
        """Experts and gates of rows [T, H], capacity applied to these rows alone."""
        if self.router is None:
            routes = even_routes(len(rows), experts=self.settings.experts, k=self.settings.k)
        else:
            logits = functional.linear(rows.float(), self.router.float()).cpu().numpy()
            routes = top_k_routes(logits, k=self.settings.k)
        if self.settings.k == self.settings.experts:  # nothing to choose, so nothing to prefer
            routes = Routes(routes.experts, np.full_like(routes.gates, 1 / routes.total_experts),
                            routes.total_experts)  # fmt: skip
        if self.settings.capacity_factor is not None and len(rows):
            places = capacity(
                len(rows), experts=routes.total_experts, experts_per_token=self.settings.k,
                capacity_factor=self.settings.capacity_factor,
            )  # fmt: skip
            routes = within_capacity(routes, places=places)
        return Routes(routes.experts, routes.gates * self.settings.scale, routes.total_experts)

    def facts(self, routes: Routes, rows: Tensor) -> dict[str, Any]:
        """Load of each expert by this rank's tokens, dropped share, predicted dispatch bytes.

        ``experts_s``: seconds in which this rank's experts computed, for the tokens of all ranks.
        """
        return {
            "tokens": len(rows),
            "experts_s": self._experts_s,
            "load": routes.load().tolist(),
            "dropped_share": routes.dropped_share,
            "rows_to_ranks": routes.rows_to_ranks(ranks=self.comm.size).tolist(),
            "dispatch_bytes": routed_bytes(
                routes, ranks=self.comm.size, hidden=rows.shape[1],
                element_bytes=rows.element_size(),
            ),
        }  # fmt: skip

    def _exchange(self, rows: Tensor, load: np.ndarray) -> Tensor:
        """Rows in expert order out to their experts, and the results back in the same order."""
        size, local = self.comm.size, len(self.mine)
        counts = torch.from_numpy(load.astype(np.int64)).to(rows.device)
        incoming = self.comm.all_to_all(counts, label="counts").view(size, local).cpu().numpy()
        send, receive = load.reshape(size, local).sum(1).tolist(), incoming.sum(1).tolist()
        arrived = self.comm.all_to_all(rows, send_rows=send, receive_rows=receive, label="dispatch")
        results = torch.empty_like(arrived)
        # Arrived rows: by source rank, then by expert.
        number = np.repeat(np.tile(np.arange(local), size), incoming.reshape(-1))
        self.comm.synchronise()
        start_s = time.perf_counter()
        for position, expert in enumerate(self.experts):
            own = torch.from_numpy(np.nonzero(number == position)[0]).to(rows.device)
            results[own] = expert(arrived[own])
        self.comm.synchronise()
        self._experts_s = time.perf_counter() - start_s
        return self.comm.all_to_all(results, send_rows=receive, receive_rows=send, label="combine")
