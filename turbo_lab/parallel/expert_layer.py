"""One MoE layer on real activations over several ranks: what an uneven load costs.

Needs torch in the ranks only.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.experts import imbalance, rank_loads
from turbo_lab.parallel.launch import launch
from turbo_lab.parallel.pipeline_study import text_prompts

if TYPE_CHECKING:
    import numpy as np

    from turbo_lab.parallel.comm import Comm

ROUTERS = ("even", "seeded", "clustered", "collapsed")


@dataclass(frozen=True)
class LayerArm:
    """One way to route one layer.

    ``router``: even (experts dealt out in turn), seeded (random weights), clustered (similar tokens
    share an expert) or collapsed (all tokens take the first k experts).
    """

    name: str
    router: str
    capacity_factor: float | None = None


@dataclass(frozen=True)
class LayerRun:
    """What one arm did. ``loads``: tokens of each expert, for each rank that sent them.

    ``experts_s``: for each pass and rank the seconds its experts computed; ``step_s``: for each
    pass those of the whole layer. ``error``: difference to the layer without capacity, over the
    length of its output.
    """

    loads: list[list[int]]
    dropped_share: float
    experts_s: list[list[float]]
    step_s: list[float]
    error: float

    @property
    def load(self) -> list[int]:
        """Tokens of each expert, of all ranks together."""
        return [sum(column) for column in zip(*self.loads, strict=True)]

    def rank_imbalance(self, *, ranks: int) -> float:
        """Largest rank's load over the mean."""
        return imbalance(rank_loads(self.load, ranks=ranks))

    def slowest_s(self) -> float:
        """Median over the passes of the slowest rank's expert time."""
        return median(max(ranks) for ranks in self.experts_s)


def run_layer(
    model: str, *, arms: Sequence[LayerArm], layer: int, experts: int, k: int, rows: int,
    prompt_tokens: int, ranks: int = 2, passes: int = 5,
) -> dict[str, Any]:  # fmt: skip
    """One MoE layer on the real activations of ``rows`` prompts, the arms in turns.

    The clustered router is made from as many other prompts. Returns, by arm, ``LayerRun``'s fields.
    """
    if unknown := {arm.router for arm in arms} - set(ROUTERS):
        raise UsageError(f"routers {sorted(unknown)}; allowed: {', '.join(ROUTERS)}")
    found = launch(
        "turbo_lab.parallel.expert_layer:layer_job", ranks=ranks, threads=1, deadline_s=240,
        arguments={
            "model": model, "prompts": text_prompts(model, rows=2 * rows, tokens=prompt_tokens),
            "arms": [asdict(arm) for arm in arms], "layer": layer, "experts": experts, "k": k,
            "passes": passes,
        },
    ).results  # fmt: skip
    return {arm.name: _together([rank[arm.name] for rank in found]) for arm in arms}


def layer_job(
    comm: Comm,
    *,
    model: Any,
    prompts: Sequence[Sequence[int]],
    arms: Sequence[Mapping[str, Any]],
    layer: int,
    experts: int,
    k: int,
    passes: int,
) -> dict[str, Any]:
    """One rank of ``run_layer``: its part of the tokens, its experts, the times of every pass."""
    import torch

    from turbo_lab.parallel.expert import MoeLayer, MoeSettings
    from turbo_lab.parallel.jobs import mlp_inputs, model_weights

    weights = model_weights(model, comm=comm, layers=layer + 1)
    inputs = mlp_inputs(weights, torch.tensor(prompts, device=comm.device))[layer]
    fitted, judged = inputs[: len(inputs) // 2], torch.from_numpy(inputs[len(inputs) // 2 :])
    routers = _routers(comm, fitted, experts=experts)
    own = torch.tensor_split(judged.to(comm.device), comm.size)[comm.rank]
    made: dict[str, MoeLayer] = {}
    for arm in map(dict, arms):
        settings = MoeSettings(experts, k, arm["capacity_factor"], scale=float(experts))
        router = routers[arm["router"]]
        made[arm["name"]] = MoeLayer(weights, layer, comm=comm, router=router, settings=settings)
    whole = {
        kind: MoeLayer(weights, layer, comm=comm, router=router,
                       settings=MoeSettings(experts, k, scale=float(experts)))(own)
        for kind, router in routers.items()
    }  # fmt: skip
    kinds = {arm["name"]: arm["router"] for arm in map(dict, arms)}
    found: dict[str, Any] = {name: {"experts_s": [], "step_s": []} for name in made}
    with torch.inference_mode():
        for number in range(passes + 1):
            for name, moe in made.items():
                seconds, out = _timed(moe, own, comm)
                if number == 0:  # the first call of a shape is slower: checked, not timed
                    reference = whole[kinds[name]]
                    error = float((out - reference).norm() / reference.norm())
                    found[name] |= {"load": moe.last["load"], "error": error,
                                    "dropped_share": moe.last["dropped_share"]}  # fmt: skip
                    continue
                found[name]["step_s"].append(seconds)
                found[name]["experts_s"].append(moe.last["experts_s"])
    return found


def _timed(moe: Any, own: Any, comm: Comm) -> tuple[float, Any]:
    comm.barrier()
    start_s = time.perf_counter()
    out = moe(own)
    comm.synchronise()
    comm.barrier()
    return time.perf_counter() - start_s, out


def _routers(comm: Comm, fitted: np.ndarray, *, experts: int) -> dict[str, np.ndarray | None]:
    """One router of each kind; rank 0's clusters, so that all ranks route alike to the last bit."""
    import numpy as np
    import torch

    from turbo_lab.parallel.expert import clustered_router, seeded_router

    hidden = fitted.shape[1]
    made = torch.zeros(experts, hidden)
    if comm.rank == 0:
        made = torch.from_numpy(clustered_router(fitted, experts=experts))
    made = comm.broadcast(made.to(comm.device), label="router").cpu()
    seeded = seeded_router(hidden, experts=experts)
    nothing = np.zeros((experts, hidden), np.float32)  # equal logits: the lower numbers win
    return {"even": None, "seeded": seeded, "clustered": made.numpy(), "collapsed": nothing}


def _together(per_rank: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    loads = [rank["load"] for rank in per_rank]
    pairs = [sum(load) / max(1e-9, 1 - r["dropped_share"])
             for load, r in zip(loads, per_rank, strict=True)]  # fmt: skip
    dropped = sum(p * r["dropped_share"] for p, r in zip(pairs, per_rank, strict=True))
    return {
        "loads": loads,
        "dropped_share": dropped / sum(pairs),
        "experts_s": [list(p) for p in zip(*(r["experts_s"] for r in per_rank), strict=True)],
        "step_s": [max(p) for p in zip(*(r["step_s"] for r in per_rank), strict=True)],
        "error": max(rank["error"] for rank in per_rank),
    }
