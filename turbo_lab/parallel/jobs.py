"""What the ranks of the lessons run: each job takes its group and returns plain figures.

They work on the bundled model's folder, or on a config.json as a dict with seeded random weights.
Start them with ``launch(jobs.tensor_job, ranks=3, arguments={...})`` or, by name, with torchrun.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from turbo_lab.core.errors import UsageError
from turbo_lab.parallel.comm import Comm
from turbo_lab.parallel.expert import MoeLayer, MoeSettings, clustered_router, seeded_router
from turbo_lab.parallel.partition import tensor_part
from turbo_lab.parallel.pipeline import Pipeline
from turbo_lab.parallel.schedule import Slot, rows_from
from turbo_lab.parallel.stage import Caches, Stage
from turbo_lab.parallel.tally import total
from turbo_lab.parallel.tensor import SwiGLU, Tensor
from turbo_lab.parallel.weights import Weights, open_weights, random_weights

Model = str | Mapping[str, Any]
Prompts = Sequence[Sequence[int]]


def model_weights(
    model: Model, *, comm: Comm, layers: int | None = None, dtype: str = "float32"
) -> Weights:
    """Weights of a folder, or seeded ones of a config; cut after ``layers`` layers if given."""
    if isinstance(model, str):
        weights = open_weights(model)
    else:
        weights = random_weights(model)
    weights = replace(weights, device=str(comm.device), dtype=dtype)
    return weights if layers is None else weights.first_layers(layers)


def tensor_job(
    comm: Comm,
    *,
    model: Model,
    prompts: Prompts,
    new_tokens: int,
    layers: int | None = None,
    with_logits: bool = False,
    dtype: str = "float32",
) -> dict[str, Any]:
    """Greedy tokens of the model split over all ranks, and what it took.

    Returns ``tokens`` [B, new_tokens], ``step_s`` (prefill first), ``tallies``, ``weight_bytes`` of
    this rank, ``kv_heads`` it holds; ``logits`` [B, T, vocab] of the prompts and their payload
    ``logits_bytes`` if asked.
    """
    weights = model_weights(model, comm=comm, layers=layers, dtype=dtype)
    stage = Stage(weights, comm=comm)
    tokens = torch.tensor(prompts, device=comm.device)
    logits = None
    if with_logits:
        with torch.inference_mode():
            logits = stage.logits(tokens).double().cpu().numpy()
    logits_bytes = total(comm.tallies(), label="logits")
    comm.reset()
    comm.barrier()
    chosen, step_s, start_s = [], [], time.perf_counter()
    for best in stage.steps(tokens, new_tokens=new_tokens):
        chosen.append(best.cpu().numpy())
        now_s = time.perf_counter()
        step_s.append(now_s - start_s)
        start_s = now_s
    part = tensor_part(weights.spec, rank=comm.rank, ranks=comm.size)
    return {
        "tokens": np.stack(chosen, axis=1),
        "step_s": step_s,
        "tallies": comm.tallies(),
        "weight_bytes": _held_bytes(stage),
        "kv_heads": len(part.kv_heads),
        "logits": logits,
        "logits_bytes": logits_bytes,
    }


def pipeline_job(
    comm: Comm,
    *,
    model: Model,
    prompts: Prompts,
    new_tokens: int,
    micro_batches: int,
    layers: int | None = None,
    split: Sequence[tuple[int, int]] | None = None,
    warm_up: bool = False,
) -> dict[str, Any]:
    """Greedy tokens of the model as a pipeline, one stage for each rank.

    ``split``: (first, end) layer of each stage. ``warm_up``: one micro-batch before, neither timed
    nor counted; the first pass of a process is slower. Returns ``tokens`` [N, new_tokens] (last
    rank), ``slots`` as (stage, micro-batch, kind, step, start_s, end_s), ``tallies``.
    """
    weights = model_weights(model, comm=comm, layers=layers)
    parts = [range(*pair) for pair in split] if split else None
    pipe = Pipeline(weights, comm=comm, layers=parts)
    tokens = torch.tensor(prompts, device=comm.device)
    if warm_up:
        pipe.generate(tokens[: len(tokens) // micro_batches], micro_batches=1, new_tokens=2)
        _forget(pipe)
    run = pipe.generate(tokens, micro_batches=micro_batches, new_tokens=new_tokens)
    value = None if run.value is None else run.value.cpu().numpy()
    return {"tokens": value, **_run_facts(pipe, run.slots)}


def training_job(
    comm: Comm,
    *,
    model: Model,
    tokens: Prompts,
    schedule: str,
    micro_batches: int,
    layers: int | None = None,
    split: Sequence[tuple[int, int]] | None = None,
    warm_up: bool = False,
    with_gradients: bool = False,
) -> dict[str, Any]:
    """Loss and gradients of one step by a pipeline schedule (``GPipe`` or ``1F1B``).

    ``split`` and ``warm_up`` as in :func:`pipeline_job`. Returns ``loss`` (last rank), ``slots``,
    ``tallies``, and ``gradients`` by name if asked.
    """
    weights = model_weights(model, comm=comm, layers=layers)
    parts = [range(*pair) for pair in split] if split else None
    pipe = Pipeline(weights, comm=comm, layers=parts)
    batch = torch.tensor(tokens, device=comm.device)
    if warm_up:
        pipe.train_step(batch[: len(batch) // micro_batches], schedule=schedule, micro_batches=1)
        _forget(pipe)
    run = pipe.train_step(batch, schedule=schedule, micro_batches=micro_batches)
    gradients = None
    if with_gradients:
        held = pipe.stage.parameters().items()
        gradients = {name: w.grad.cpu().numpy() for name, w in held if w.grad is not None}
    return {"loss": run.value, "gradients": gradients, **_run_facts(pipe, run.slots)}


def expert_job(
    comm: Comm,
    *,
    model: Model,
    prompts: Prompts,
    new_tokens: int,
    experts: int = 8,
    k: int = 2,
    capacity_factor: float | None = None,
    router: str = "seeded",
    layers: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Data-parallel attention with expert parallelism: each rank generates for its own requests.

    The requests are shared out in order; the experts of every layer lie on all ranks. Returns
    ``tokens`` of this rank's requests, ``tallies``, and for each layer the facts of the prefill
    (``load``, ``dropped_share``, ``rows_to_ranks``, ``dispatch_bytes``) under ``prefill``.
    """
    weights = model_weights(model, comm=comm, layers=layers)
    whole = torch.tensor(prompts, device=comm.device)
    routers = _routers(weights, comm, whole, router=router, experts=experts, seed=seed)
    settings = MoeSettings(experts, k, capacity_factor, scale=float(experts))
    made: list[MoeLayer] = []

    def moe(layer: int) -> MoeLayer:
        made.append(MoeLayer(weights, layer, comm=comm, router=routers[layer], settings=settings))
        return made[-1]

    stage = Stage(weights, comm=Comm.single(device=str(comm.device)), feed_forward=moe)
    own = torch.tensor_split(whole, comm.size)[comm.rank]
    comm.reset()
    prefill, chosen = [], []
    for best in stage.steps(own, new_tokens=new_tokens):
        chosen.append(best.cpu().numpy())
        prefill = prefill or [dict(layer.last) for layer in made]
    return {"tokens": np.stack(chosen, axis=1), "tallies": comm.tallies(), "prefill": prefill}


def mlp_inputs(weights: Weights, tokens: Tensor) -> list[np.ndarray]:
    """What reaches the MLP of each layer: [B*T, H] for token ids [B, T], the model unsharded."""
    single, seen = Comm.single(device=weights.device), {}
    part = tensor_part(weights.spec, rank=0, ranks=1)

    def recorded(layer: int) -> Callable[[Tensor], Tensor]:
        dense = SwiGLU(weights, layer, part=part, comm=single)

        def run(hidden: Tensor) -> Tensor:
            seen[layer] = hidden.flatten(0, -2).float().cpu().numpy()
            return dense(hidden)

        return run

    stage = Stage(weights, comm=single, feed_forward=recorded)
    with torch.inference_mode():
        stage.hidden(tokens, Caches.for_stage(stage))
    return [seen[layer] for layer in stage.layers]


def _routers(
    weights: Weights, comm: Comm, tokens: Tensor, *, router: str, experts: int, seed: int
) -> list[np.ndarray]:
    """One router for each layer; rank 0's, so that all ranks route alike to the last bit."""
    count, hidden = len(weights.spec.layers), weights.spec.hidden
    if router not in ("seeded", "clustered"):
        raise UsageError(f"router is {router!r}; allowed: seeded, clustered")
    made = [np.zeros((experts, hidden), np.float32)] * count
    if router == "seeded":
        return [seeded_router(hidden, experts=experts, seed=seed + n) for n in range(count)]
    if comm.rank == 0:
        inputs = mlp_inputs(weights, tokens)
        made = [clustered_router(x, experts=experts, seed=seed + n) for n, x in enumerate(inputs)]
    whole = torch.from_numpy(np.stack(made)).to(comm.device)
    return list(comm.broadcast(whole, label="router").cpu().numpy())


def _held_bytes(stage: Stage) -> int:
    weights = stage.parameters().values()
    return sum(weight.numel() * weight.element_size() for weight in weights)


def _forget(pipe: Pipeline) -> None:
    pipe.comm.reset()
    pipe.back.reset()


def _run_facts(pipe: Pipeline, slots: list[Slot]) -> dict[str, Any]:
    return {
        "slots": rows_from(slots),
        "tallies": [*pipe.comm.tallies(), *pipe.back.tallies()],
        "weight_bytes": _held_bytes(pipe.stage),
    }
