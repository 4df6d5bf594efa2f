"""From which link on splitting a model's layers is slower than leaving them on one device.

    t(n) = t(1) / n + sum of the collectives' times

The first part is the best that splitting can do; the second comes from the fitted cost of the link.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.tensor_parallel import Exchange
from turbo_lab.models.spec import ModelSpec, from_hf_config
from turbo_lab.network.busbw import busbw_factor
from turbo_lab.parallel.tensor_traffic import greedy_exchanges as greedy_exchanges

if TYPE_CHECKING:
    from turbo_lab.parallel.comm import Comm

Cost = Callable[[str, int], float]  # (kind, bytes) to seconds


def exchanges_s(exchanges: Sequence[Exchange], *, cost: Cost) -> float:
    """Seconds of a step's collectives, one after the other."""
    return sum(one.count * cost(one.kind, one.size_bytes) for one in exchanges)


def split_step_s(alone_s: float, exchanges: Sequence[Exchange], *, ranks: int, cost: Cost) -> float:
    """Seconds of a step over ``ranks`` devices that takes ``alone_s`` on one."""
    if alone_s <= 0 or ranks < 1:
        raise UsageError(f"alone_s {alone_s}, ranks {ranks}; allowed: above 0, and from 1")
    return alone_s / ranks + exchanges_s(exchanges, cost=cost)


def break_even_bytes_s(
    alone_s: float, exchanges: Sequence[Exchange], *, ranks: int, latency_s: float = 0.0
) -> float:
    """Link rate at which the split step takes as long as the whole one; faster links gain.

    ``sum(factor * S) / ((1 - 1/n) t(1) - latency)``. ``latency_s``: of all collectives together.
    Infinite where latency alone eats the gain: then no link is fast enough.
    """
    gain_s = (1 - 1 / ranks) * alone_s - latency_s
    sent = sum(one.total_bytes * busbw_factor(one.kind, ranks) for one in exchanges)
    return sent / gain_s if gain_s > 0 else math.inf


def steps_job(
    comm: Comm,
    *,
    config: Mapping[str, Any],
    rows: int,
    tokens: int,
    new_tokens: int,
    repeats: int,
    split: bool,
) -> dict[str, Any]:
    """Times of prefill and decode on one rank, the model ``split`` over all ranks or whole on each.

    Whole models run on all ranks at the same time, as replicas do. Returns ``prefill_s`` (one per
    repeat), ``decode_s`` (all decode steps), ``tokens`` of the first request, ``payload_bytes``.
    """
    import torch

    from turbo_lab.parallel.comm import Comm as Group
    from turbo_lab.parallel.stage import Stage
    from turbo_lab.parallel.tally import total
    from turbo_lab.parallel.weights import random_weights

    group = comm if split else Group.single(device=str(comm.device))
    stage = Stage(random_weights(config), comm=group)
    drawn = torch.Generator().manual_seed(1)
    prompts = torch.randint(0, stage.spec.vocab, (rows, tokens), generator=drawn).to(comm.device)
    prefill_s, decode_s, first = [], [], []
    for number in range(repeats + 1):
        group.reset()
        comm.barrier()
        marks_s, first = [time.perf_counter()], []
        for best in stage.steps(prompts, new_tokens=new_tokens):
            first.append(int(best[0]))  # also waits for the device
            marks_s.append(time.perf_counter())
        taken = [after - before for before, after in itertools.pairwise(marks_s)]
        if number:  # the first pass of a process is slower
            prefill_s.append(taken[0])
            decode_s += taken[1:]
    sent = total(group.tallies(), "payload_bytes") if split else 0
    return {"prefill_s": prefill_s, "decode_s": decode_s, "tokens": first, "payload_bytes": sent}


def spec_of(config: Mapping[str, Any]) -> ModelSpec:
    """The spec of a config given as a dict."""
    return from_hf_config(dict(config), name="random")
