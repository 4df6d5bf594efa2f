"""Tensor and pipeline parallelism together: ranks in a grid, and where the grid's rows lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from turbo_lab.core.errors import UsageError
from turbo_lab.parallel.launch import Place

if TYPE_CHECKING:
    from turbo_lab.network.hosts import Hosts
    from turbo_lab.parallel.comm import Comm
    from turbo_lab.parallel.jobs import Model, Prompts

PLACEMENTS = ("stages together", "stages apart")


def grid_groups(*, tensor: int, stages: int) -> tuple[list[list[int]], list[list[int]]]:
    """Tensor-parallel groups and pipelines of ranks: rank ``s * tensor + t`` is part t of stage s.

    Raises UsageError for counts below 1.
    """
    if tensor < 1 or stages < 1:
        raise UsageError(f"tensor {tensor}, stages {stages}; allowed: whole numbers from 1")
    rows = [[s * tensor + t for t in range(tensor)] for s in range(stages)]
    return rows, [list(column) for column in zip(*rows, strict=True)]


def host_of_ranks(placement: str, *, tensor: int, stages: int, hosts: int) -> list[int]:
    """The host of each rank when all hosts take equally many.

    ``stages together``: a stage's ranks share a host, so only hidden states between stages leave
    it. ``stages apart``: they are dealt out one by one, so that every all-reduce crosses the
    network. Raises UsageError where the ranks do not divide.
    """
    ranks = tensor * stages
    if placement not in PLACEMENTS or hosts < 1 or ranks % hosts:
        raise UsageError(
            f"placement {placement!r} of {ranks} ranks on {hosts} hosts; allowed: "
            f"{', '.join(PLACEMENTS)}, and a number of hosts that divides the ranks"
        )
    if placement == "stages together":
        return [rank // (ranks // hosts) for rank in range(ranks)]
    return [rank % hosts for rank in range(ranks)]


def placed(hosts: Hosts, host_of: list[int]) -> Callable[[int], Place]:
    """``launch``'s place: rank i on host ``host_of[i]``."""
    return lambda rank: Place.on(hosts, host_of[rank])


def grid_job(
    comm: Comm,
    *,
    model: Model,
    prompts: Prompts,
    new_tokens: int,
    tensor: int,
    stages: int,
    micro_batches: int,
    layers: int | None = None,
) -> dict[str, Any]:
    """Greedy tokens of the model over ``tensor * stages`` ranks.

    Every part of a stage holds the whole hidden state, so each sends it to its own successor: the
    pipeline's payload counts ``tensor`` times. Returns ``tokens`` on the last stage's ranks, ``s``
    of the whole generation after one warm-up token, and the tallies of both kinds of groups.
    """
    import time

    import torch

    from turbo_lab.parallel.jobs import model_weights
    from turbo_lab.parallel.pipeline import Pipeline

    rows, columns = grid_groups(tensor=tensor, stages=stages)
    if comm.size != tensor * stages:
        raise UsageError(
            f"a grid of {tensor} x {stages} needs {tensor * stages} ranks; there are {comm.size}"
        )
    inside, along = comm.split(rows), comm.split(columns)
    weights = model_weights(model, comm=comm, layers=layers)
    pipe = Pipeline(weights, comm=along, stage_comm=inside)
    tokens = torch.tensor(prompts, device=comm.device)
    pipe.generate(tokens, micro_batches=micro_batches, new_tokens=1)
    for used in (inside, along, pipe.back):
        used.reset()
    comm.barrier()
    start_s = time.perf_counter()
    run = pipe.generate(tokens, micro_batches=micro_batches, new_tokens=new_tokens)
    comm.barrier()
    return {
        "tokens": None if run.value is None else run.value.cpu().numpy(),
        "s": time.perf_counter() - start_s,
        "tensor_tallies": inside.tallies(),
        "pipeline_tallies": [*along.tallies(), *pipe.back.tallies()],
    }
