"""Two ranks swap a message at the same moment: does the order of the calls matter?

gloo tells a sender that its receiver is ready by a note on the same connection. A rank that gives
its payload to the connection first lets that note wait behind it, and the other direction with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from turbo_lab.core.errors import UsageError
from turbo_lab.parallel.comm import Comm

ORDERS = ("receive first", "send first")


def swap_job(comm: Comm, *, size_bytes: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of each swap of ``size_bytes`` in each direction, one after the other, by order.

    Raises UsageError for another number of ranks than two.
    """
    if comm.size != 2:
        raise UsageError(f"a swap needs 2 ranks; there are {comm.size}")
    own, other = torch.ones(size_bytes // 4), torch.empty(size_bytes // 4)
    peer = 1 - comm.rank

    def send_first() -> None:
        sending = comm.start_send(own, to=peer)
        comm.recv(other, source=peer)
        sending.wait()

    runs: dict[str, Callable[[], object]] = {
        "receive first": lambda: comm.exchange(own, to=peer, out=other, source=peer),
        "send first": send_first,
    }
    samples: dict[str, list[float]] = {}
    for name, run in runs.items():
        run()
        comm.barrier()
        samples[name] = [_timed(run) for _ in range(repeats)]
    return samples


def _timed(run: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    run()
    return time.perf_counter() - start_s
