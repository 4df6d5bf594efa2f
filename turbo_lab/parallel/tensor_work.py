"""What the ranks of the tensor-parallel lesson run: checked, counted and timed, in turns.

``turbo_lab.parallel.tensor_study`` starts these jobs and reads what they return: plain data.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from turbo_lab.parallel.comm import Comm, Pending
from turbo_lab.parallel.jobs import Model, model_weights, tensor_job
from turbo_lab.parallel.stage import Caches, Stage
from turbo_lab.parallel.sweep import sweep_job
from turbo_lab.parallel.tensor import Tensor

Points = Sequence[tuple[int, int]]  # (rows, prompt tokens of each)
FIRST_TOKEN_ID = 1000


class MutableComm(Comm):
    """A group whose exchanges can be left out: then a rank computes its share and sends nothing.

    The numbers are wrong then, and the products are the same: what is left is the share's time.
    """

    muted = False

    def start_all_reduce(self, tensor: Tensor, *, label: str = "", wait: bool = False) -> Pending:
        """As ``Comm``'s; muted: the rank's own partial sums."""
        if self.muted:
            return Pending(None, tensor)
        return super().start_all_reduce(tensor, label=label, wait=wait)

    def all_gather(self, tensor: Tensor, *, label: str = "", out: Tensor | None = None) -> Tensor:
        """As ``Comm``'s; muted: the rank's own piece as often as there are ranks."""
        if self.muted:
            return tensor.repeat(self.size, *[1] * (tensor.dim() - 1))
        return super().all_gather(tensor, label=label, out=out)


def study_job(
    comm: Comm,
    *,
    model: Model,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    points: Points,
    decode_steps: int,
    passes: int,
    sizes: Sequence[int],
    gathers: Sequence[int],
    cores: int,
) -> dict[str, Any]:
    """Check the sharded model against the whole one, then time both, pass by pass.

    Each pass, one after the other: the whole model on rank 0 with one thread and with ``cores``;
    the shares of as many ranks as have a core, nothing sent; the sharded model; the collectives
    alone. Returns ``check`` (see ``_checked``), and ``whole``, ``whole_wide``, ``share``,
    ``sharded`` as [pass][point] of (prefill s, decode step s), ``inside`` (seconds of the sharded
    steps inside collectives), and ``sweeps`` [pass] by kind.
    """
    weights = model_weights(model, comm=comm)
    group = MutableComm(device=str(comm.device))
    sharded = Stage(weights, comm=group)
    whole = Stage(weights, comm=Comm.single(device=str(comm.device))) if comm.rank == 0 else None
    found: dict[str, Any] = {"check": _checked(sharded, whole, group, prompts, new_tokens)}
    names = ("whole", "whole_wide", "share", "sharded", "inside", "sweeps")
    found |= {name: [] for name in names}
    run = _Timer(points, decode_steps, vocab=weights.spec.vocab)
    run.warm(sharded)
    for _ in range(passes):
        comm.barrier()
        if whole is not None:
            found["whole"].append(run.times(whole))
            torch.set_num_threads(cores)
            found["whole_wide"].append(run.times(whole))
            torch.set_num_threads(1)
        comm.barrier()
        group.muted = True
        if comm.rank < cores:
            found["share"].append(run.times(sharded))
        group.muted = False
        comm.barrier()
        group.reset()
        found["sharded"].append(run.times(sharded))
        found["inside"].append([row["seconds"] for row in group.tallies()])
        found["sweeps"].append({
            "all_reduce": sweep_job(comm, kind="all_reduce", sizes=sizes, iterations=12),
            "all_gather": sweep_job(comm, kind="all_gather", sizes=gathers, iterations=12),
        })  # fmt: skip
    return found


def replicas_job(
    comm: Comm, *, model: Model, prompts: Sequence[Sequence[int]], new_tokens: int
) -> dict[str, Any]:
    """A model over more ranks than it has KV heads: what each rank must keep.

    Returns this rank's ``kv_heads``, ``cache_bytes`` (after the prompts), ``weight_bytes``,
    ``tokens``; on rank 0 also ``whole_cache_bytes`` and ``whole_tokens`` of the unsharded model.
    """
    work = {"model": model, "prompts": prompts, "new_tokens": new_tokens}
    own = tensor_job(comm, **work)
    weights = model_weights(model, comm=comm)
    found = {
        "kv_heads": own["kv_heads"],
        "weight_bytes": own["weight_bytes"],
        "tokens": own["tokens"].tolist(),
        "cache_bytes": _cache_bytes(Stage(weights, comm=comm), prompts),
    }
    if comm.rank == 0:
        single = Comm.single(device=str(comm.device))
        found["whole_tokens"] = tensor_job(single, **work)["tokens"].tolist()
        found["whole_cache_bytes"] = _cache_bytes(Stage(weights, comm=single), prompts)
    return found


def traffic_job(
    comm: Comm,
    *,
    model: Model,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    interface: str,
    layers: int | None = None,
) -> dict[str, Any]:
    """Greedy steps with the interface's own counters read right before and after them.

    Returns ``tallies``, ``tokens``, ``sent_bytes`` and ``sent_packets`` of the interface.
    """
    weights = model_weights(model, comm=comm, layers=layers)
    stage, tokens = Stage(weights, comm=comm), torch.tensor(prompts, device=comm.device)
    stage.generate(tokens, new_tokens=1)  # connections are open, addresses known
    comm.reset()
    comm.barrier()
    before = interface_counters(interface)
    chosen = stage.generate(tokens, new_tokens=new_tokens)
    after = interface_counters(interface)
    return {
        "tokens": chosen.cpu().tolist(), "tallies": comm.tallies(),
        "sent_bytes": after[0] - before[0], "sent_packets": after[1] - before[1],
    }  # fmt: skip


def interface_counters(name: str) -> tuple[int, int]:
    """(bytes, packets) that this host's interface has sent, by the kernel's count (Linux)."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    fields = next(row for row in lines if row.strip().startswith(f"{name}:")).split(":")[1].split()
    return int(fields[8]), int(fields[9])


class _Timer:
    """Times the same points over and over: a prefill, and the median decode step, in seconds."""

    def __init__(self, points: Points, decode_steps: int, *, vocab: int) -> None:
        rng = np.random.default_rng(0)
        self._tokens = [
            torch.from_numpy(rng.integers(min(FIRST_TOKEN_ID, vocab // 2), vocab, size=shape))
            for shape in points
        ]
        self._steps = decode_steps

    def times(self, stage: Stage) -> list[tuple[float, float]]:
        """(prefill, decode step) of every point."""
        return [self._one(stage, tokens) for tokens in self._tokens]

    def warm(self, stage: Stage) -> None:
        """Kernels and connections are used once."""
        for tokens in self._tokens:
            stage.generate(tokens.to(stage.device), new_tokens=2)

    def _one(self, stage: Stage, tokens: Tensor) -> tuple[float, float]:
        prompts = tokens.to(stage.device)
        marks_s = [time.perf_counter()]
        for best in stage.steps(prompts, new_tokens=1 + self._steps):
            best.cpu()
            marks_s.append(time.perf_counter())
        prefill_s, *steps_s = np.diff(marks_s).tolist()
        return prefill_s, statistics.median(steps_s)


def _checked(
    sharded: Stage,
    whole: Stage | None,
    group: Comm,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
) -> dict[str, Any]:
    """Both models' greedy tokens, the payload counted meanwhile, and how far the logits are apart.

    ``logit_error``: largest difference of the first prompt's logits over the largest logit.
    """
    tokens = torch.tensor(prompts, device=sharded.device)
    group.reset()
    found = {"tokens": sharded.generate(tokens, new_tokens=new_tokens).cpu().tolist()}
    found["tallies"] = group.tallies()
    with torch.inference_mode():
        logits = sharded.logits(tokens[:1])
        if whole is not None:
            exact = whole.logits(tokens[:1])
            error = (logits - exact).abs().max() / exact.abs().max()
            found["logit_error"] = float(error)
            found["whole_tokens"] = whole.generate(tokens, new_tokens=new_tokens).cpu().tolist()
    return found


def _cache_bytes(stage: Stage, prompts: Sequence[Sequence[int]]) -> int:
    """Bytes of keys and values that a stage holds after these prompts."""
    caches = Caches.for_stage(stage)
    with torch.inference_mode():
        stage.hidden(torch.tensor(prompts, device=stage.device), caches)
    kept = [t for layer in caches.layers for t in (layer.keys, layer.values) if t is not None]
    return sum(t.numel() * t.element_size() for t in kept)
