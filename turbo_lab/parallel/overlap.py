"""Computing while an all-reduce runs, measured; ``turbo_lab.network.overlap`` predicts it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from turbo_lab.core.errors import UsageError
from turbo_lab.parallel.comm import Comm

SIDE = 192  # of the products: small enough to be stopped at any time, large enough to keep a core


def overlap_job(
    comm: Comm,
    *,
    size_bytes: int,
    compute_s: float,
    pieces: tuple[int, ...] = (1, 4),
    repeats: int = 5,
) -> dict[str, Any]:
    """Time of computing, of an all-reduce, of both in turn, and of both at once.

    Args:
        comm: the ranks.
        size_bytes: the all-reduce's tensor.
        compute_s: seconds of matrix products beside it (rounded to whole products).
        pieces: into how many parts both are cut in the overlapped runs: part i is sent while part
            i+1 is computed, as a gradient or a layer's output would be.
        repeats: samples of each.

    Returns samples in seconds, one list each: ``compute``, ``communication``, ``in_turn`` and
    ``pieces N``. With one piece there is something to compute that needs no part of the result, so
    all of it can hide; with N the first part computes alone.
    """
    if size_bytes < 4 or compute_s <= 0 or repeats < 1 or min(pieces, default=0) < 1:
        raise UsageError(
            f"size_bytes {size_bytes}, compute_s {compute_s}, pieces {pieces}, repeats {repeats}; "
            "allowed: 4 or more bytes, seconds above 0, pieces and repeats from 1"
        )
    buffer = torch.ones(size_bytes // 4, device=comm.device)
    work = _Products(comm, compute_s)
    runs: dict[str, Callable[[], object]] = {
        "compute": lambda: work.run(work.count),
        "communication": lambda: comm.all_reduce(buffer),
        "in_turn": lambda: (work.run(work.count), comm.all_reduce(buffer)),
    }
    for count in pieces:
        runs[f"pieces {count}"] = lambda count=count: _overlapped(comm, buffer, work, count)
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats + 1):
        for name, run in runs.items():  # in turn, so that a slow moment of the machine hits all
            comm.synchronise()
            comm.barrier()
            start_s = time.perf_counter()
            run()
            comm.synchronise()
            samples[name].append(time.perf_counter() - start_s)
            buffer.fill_(1.0)
    return {name: row[1:] for name, row in samples.items()} | {"products": work.count}


class _Products:
    """A number of matrix products that take about the wanted time, the same on all ranks."""

    def __init__(self, comm: Comm, seconds: float) -> None:
        self._matrix = torch.full((SIDE, SIDE), 1 / SIDE, device=comm.device)
        self._comm = comm
        self.run(20)
        comm.synchronise()
        start_s = time.perf_counter()
        self.run(50)
        comm.synchronise()
        one_s = (time.perf_counter() - start_s) / 50
        self.count = comm.gather_objects(max(1, round(seconds / one_s)))[0]

    def run(self, count: int) -> None:
        for _ in range(count):
            self._matrix @ self._matrix


def _overlapped(comm: Comm, buffer: torch.Tensor, work: _Products, pieces: int) -> None:
    if pieces == 1:
        pending = comm.start_all_reduce(buffer)
        work.run(work.count)
        pending.wait()
        return
    sending = []
    for number, part in enumerate(buffer.tensor_split(pieces)):
        done, upto = work.count * number // pieces, work.count * (number + 1) // pieces
        work.run(upto - done)
        sending.append(comm.start_all_reduce(part))
    for pending in sending:
        pending.wait()
