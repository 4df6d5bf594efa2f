"""Pipeline parallelism: stages over layers, the schedules of ``schedule`` executed for real.

One rank is one stage. Activations go to the next stage and gradients back, each direction with
messages of its own, so that a send never blocks the other direction. Sends are started and waited
for later; receives wait, and that waiting is the measured bubble.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from turbo_lab.core import host
from turbo_lab.core.errors import UsageError
from turbo_lab.parallel.comm import Comm, Pending
from turbo_lab.parallel.partition import split_layers
from turbo_lab.parallel.schedule import Slot, Task, decode_order, training_order
from turbo_lab.parallel.stage import Caches, Stage
from turbo_lab.parallel.weights import Weights

Tensor = torch.Tensor


@dataclass
class Run:
    """What one stage did. ``value``: the tokens [m, B, steps] or the mean loss, on the last stage.

    ``slots``: its tasks, compute only, in seconds from the common start.
    """

    value: Any
    slots: list[Slot]


@dataclass
class Stopwatch:
    """Notes when each task computed, from a moment at which all ranks stood together.

    On one machine all processes read the same clock, so they take one origin. Ranks of several
    machines each take the moment in which they left the barrier, some 0.1 ms apart.
    """

    comm: Comm
    start_s: float = 0.0
    slots: list[Slot] = field(default_factory=list)

    def begin(self) -> None:
        """Line up all ranks and take the time."""
        self.comm.barrier()
        self.start_s = time.perf_counter()
        moments = self.comm.gather_objects((host.clock_id(), self.start_s))
        if len({clock for clock, _ in moments}) == 1:
            self.start_s = max(moment_s for _, moment_s in moments)

    @contextmanager
    def task(self, task: Task) -> Iterator[None]:
        """Time what is computed inside; on a GPU what was received before must have arrived."""
        self.comm.synchronise()
        start_s = time.perf_counter()
        yield
        self.comm.synchronise()
        end_s = time.perf_counter()
        self.slots.append(Slot(task, start_s - self.start_s, end_s - self.start_s))


class _Sends:
    """Sends on their way; their tensors must live until they are through."""

    def __init__(self) -> None:
        self._pending: list[Pending] = []

    def add(self, pending: Pending) -> None:
        self._pending.append(pending)

    def wait(self) -> None:
        for pending in self._pending:
            pending.wait()
        self._pending.clear()


class Pipeline:
    """One stage of a model over the ranks of ``comm``, in order.

    ``layers``: for each stage its layers; by default split evenly.
    ``stage_comm``: tensor-parallel ranks of this stage, where it has several.
    """

    def __init__(
        self,
        weights: Weights,
        *,
        comm: Comm,
        layers: list[range] | None = None,
        stage_comm: Comm | None = None,
    ) -> None:
        self.comm, self.back = comm, comm.twin()
        parts = layers or split_layers(len(weights.spec.layers), stages=comm.size)
        if len(parts) != comm.size:
            raise UsageError(f"layers has {len(parts)} parts for {comm.size} stages")
        inside = stage_comm or Comm.single(device=str(comm.device))
        self.stage = Stage(weights, comm=inside, layers=parts[comm.rank])
        self.first, self.last = comm.rank == 0, comm.rank == comm.size - 1
        self._shape_tail = (weights.spec.hidden,)
        self._dtype = getattr(torch, weights.dtype)

    def generate(self, prompts: Tensor, *, micro_batches: int, new_tokens: int) -> Run:
        """Greedy tokens of prompts [N, T], in ``micro_batches`` equal groups that take turns.

        The last stage holds the tokens [N, new_tokens]; the others None. Step 0 is the prefill.
        """
        batches = _equal_parts(prompts, micro_batches)
        size, rank = self.comm.size, self.comm.rank
        order = decode_order(stages=size, micro_batches=micro_batches, steps=new_tokens)
        caches = [Caches.for_stage(self.stage) for _ in batches]
        chosen: list[list[Tensor]] = [[] for _ in batches]
        watch, sends = Stopwatch(self.comm), _Sends()
        watch.begin()
        with torch.inference_mode():
            for task in order[rank]:
                batch = task.micro_batch
                inputs = self._decode_input(batches[batch], task.step, chosen[batch])
                with watch.task(task):
                    state = self.stage.hidden(inputs, caches[batch])
                    best = self.stage.head.argmax(state[:, -1]) if self.stage.head else None
                if best is None:
                    self._send_forward(state, sends)
                    continue
                chosen[batch].append(best)
                if not self.first and task.step + 1 < new_tokens:
                    sends.add(self.back.start_send(best, to=0, label="token"))
            sends.wait()
            value = torch.cat([torch.stack(c, dim=1) for c in chosen]) if self.last else None
        return Run(value, watch.slots)

    def train_step(self, tokens: Tensor, *, schedule: str, micro_batches: int) -> Run:
        """Loss and gradients of next-token prediction over tokens [N, T].

        Gradients are left on ``stage.parameters()``, summed over the micro-batches; the loss (mean
        over all micro-batches) is the value on the last stage.
        """
        batches = _equal_parts(tokens, micro_batches)
        order = training_order(schedule, stages=self.comm.size, micro_batches=micro_batches)
        for weight in self.stage.parameters().values():
            weight.requires_grad_(True)
            weight.grad = None
        kept: dict[int, tuple[Tensor, Tensor]] = {}
        losses: list[float] = []
        watch, sends = Stopwatch(self.comm), _Sends()
        watch.begin()
        for task in order[self.comm.rank]:
            if task.kind == "backward":
                self._backward(task, *kept.pop(task.micro_batch), watch, sends)
                continue
            batch = batches[task.micro_batch]
            inputs = batch if self.first else self._receive_forward(batch).requires_grad_()
            with watch.task(task):
                out = self.stage.hidden(inputs, Caches.for_stage(self.stage))
                out = self._loss(out, batch) / micro_batches if self.last else out
            kept[task.micro_batch] = (inputs, out)
            if self.last:
                losses.append(float(out.detach()))
            else:
                self._send_forward(out.detach(), sends)
        sends.wait()
        return Run(sum(losses) if self.last else None, watch.slots)

    def _backward(
        self, task: Task, inputs: Tensor, out: Tensor, watch: Stopwatch, sends: _Sends
    ) -> None:
        gradient = None if self.last else self._receive_backward(out)
        with watch.task(task):
            out.backward(gradient)
        if inputs.grad is not None:
            to = self.comm.rank - 1
            sends.add(self.back.start_send(inputs.grad, to=to, label="gradient"))

    def _decode_input(self, prompt: Tensor, step: int, chosen: list[Tensor]) -> Tensor:
        if not self.first:
            return self._receive_forward(prompt if step == 0 else prompt[:, :1])
        if step == 0:
            return prompt
        if self.last:  # the whole model is one stage
            return chosen[-1][:, None]
        token = torch.empty(prompt.shape[0], dtype=torch.long, device=self.comm.device)
        return self.back.recv(token, source=self.comm.size - 1, label="token")[:, None]

    def _receive_forward(self, tokens: Tensor) -> Tensor:
        shape = (*tokens.shape, *self._shape_tail)
        buffer = torch.empty(shape, dtype=self._dtype, device=self.comm.device)
        return self.comm.recv(buffer, source=self.comm.rank - 1, label="activation")

    def _receive_backward(self, out: Tensor) -> Tensor:
        return self.back.recv(torch.empty_like(out), source=self.comm.rank + 1, label="gradient")

    def _send_forward(self, state: Tensor, sends: _Sends) -> None:
        sends.add(self.comm.start_send(state, to=self.comm.rank + 1, label="activation"))

    def _loss(self, state: Tensor, tokens: Tensor) -> Tensor:
        logits = self.stage.head(state[:, :-1])  # type: ignore[misc]
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def _equal_parts(rows: Tensor, parts: int) -> list[Tensor]:
    if parts < 1 or rows.shape[0] % parts:
        raise UsageError(
            f"{rows.shape[0]} requests into {parts} micro-batches; allowed: a number that divides."
        )
    return list(rows.chunk(parts))
