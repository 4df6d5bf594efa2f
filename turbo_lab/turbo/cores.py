"""What a collective that runs on the cores takes from the products that should run there.

Two cores are used, whatever the machine has. A product of matrices runs on both; a collective
(adding up arrays, as a reduction does) is pinned to the second one and works for a share of the
time. If only the loss of cores counted, n cores of which k are taken would need ``n / (n - k)``
times as long.

    python -m turbo_lab.turbo.cores gemm <side> <repeats> <cpu> ...     seconds of each product
    python -m turbo_lab.turbo.cores collective <share> <cpu>            until it is ended
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.core.processes import stop_group

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
PERIOD_S = 0.02
BUFFER_VALUES = 1 << 18  # 1 MiB of float32: what one core's caches hold, and the bus carries
CHILD_TIMEOUT_S = 120.0


def core_loss(cores: float, *, taken: float) -> float:
    """Slow-down when only the number of cores counts: ``n / (n - k)``."""
    if not 0 <= taken < cores:
        raise UsageError(f"{taken} of {cores} cores taken; some must be left")
    return cores / (cores - taken)


def two_cores() -> tuple[int, int]:
    """The first two cores that this process may use.

    Raises UnmeasuredError where there is one, or where processes cannot be pinned.
    """
    if not hasattr(os, "sched_getaffinity"):
        raise UnmeasuredError(f"{sys.platform} does not let a process be pinned to a core")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise UnmeasuredError("this needs two cores, and this process may use one")
    return cores[0], cores[1]


def stolen_cores(
    *,
    shares: Sequence[float] = SHARES,
    side: int = 1024,
    products: int = 6,
    repeats: int = 3,
    report: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """Rows of ``{kind, share, samples_s, seconds}``, all shares in turns, ``repeats`` times.

    ``kind``: ``shared`` (the product on both cores beside the collective), ``given`` (the product
    keeps the first core alone, the collective has the other), ``alone`` (one core, no collective).
    A sample is the median of ``products`` products of ``side``-square float32 matrices.
    """
    if bad := [s for s in shares if not 0 <= s <= 1]:
        raise UsageError(f"share {bad[0]}; allowed: 0 to 1 of one core")
    first, second = two_cores()
    plan = [("shared", s, (first, second)) for s in shares]
    plan += [("given", 1.0, (first,)), ("alone", 0.0, (first,))]
    samples: dict[tuple[str, float], list[float]] = {(kind, s): [] for kind, s, _ in plan}
    for turn in range(repeats):
        for kind, share, cpus in plan if turn % 2 == 0 else plan[::-1]:
            with _collective(share, cpu=second):
                samples[kind, share].append(_gemm_s(side, products=products, cpus=cpus))
        report(f"  turn {turn + 1} of {repeats}")
    return [
        {"kind": kind, "share": share, "samples_s": found, "seconds": statistics.median(found)}
        for (kind, share), found in samples.items()
    ]


def slowdowns(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, float], float]:
    """Seconds over those of the undisturbed product on both cores, by (kind, share)."""
    found = {(row["kind"], row["share"]): row["seconds"] for row in rows}
    return {key: seconds / found["shared", 0.0] for key, seconds in found.items()}


def _gemm_s(side: int, *, products: int, cpus: Sequence[int]) -> float:
    """Median seconds of a product in a process of its own, with one thread per core."""
    threads = str(len(cpus))
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    done = subprocess.run(
        [sys.executable, "-m", __name__, "gemm", str(side), str(products), *map(str, cpus)],
        capture_output=True, text=True, timeout=CHILD_TIMEOUT_S,
        env={**os.environ, **dict.fromkeys(names, threads)},
    )  # fmt: skip
    if done.returncode:
        raise UnmeasuredError(f"the product failed: {done.stderr.strip().splitlines()[-1:]}")
    return statistics.median(json.loads(done.stdout))


@contextmanager
def _collective(share: float, *, cpu: int) -> Iterator[None]:
    """A collective on one core while inside; none for a share of 0."""
    if share == 0:
        yield
        return
    child = subprocess.Popen(
        [sys.executable, "-m", __name__, "collective", str(share), str(cpu)],
        stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        if child.stdout.readline().strip() != "running":
            raise UnmeasuredError("the collective did not start")
        yield
    finally:
        stop_group(child.pid, timeout_s=2.0)
        child.stdin.close()
        child.stdout.close()
        child.wait(5.0)


def _gemm(argv: Sequence[str]) -> None:
    import numpy as np

    side, products, cpus = int(argv[0]), int(argv[1]), {int(a) for a in argv[2:]}
    os.sched_setaffinity(0, cpus)
    a = np.random.default_rng(0).random((side, side), dtype=np.float32)
    out = np.empty_like(a)
    found = []
    for _ in range(products + 1):
        start_s = time.perf_counter()
        np.matmul(a, a, out=out)
        found.append(time.perf_counter() - start_s)
    print(json.dumps(found[1:]))  # the first one starts the threads


def _collective_loop(argv: Sequence[str]) -> None:
    """Work for a share of every period, sleep for the rest, until the parent is gone."""
    import threading

    import numpy as np

    share, cpu = float(argv[0]), int(argv[1])
    os.sched_setaffinity(0, {cpu})
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    ours, theirs = (np.ones(BUFFER_VALUES, dtype=np.float32) for _ in range(2))
    print("running", flush=True)
    while True:
        end_s = time.perf_counter() + share * PERIOD_S
        while time.perf_counter() < end_s:
            np.add(ours, theirs, out=ours)
        if share < 1:
            time.sleep((1 - share) * PERIOD_S)


if __name__ == "__main__":
    {"gemm": _gemm, "collective": _collective_loop}[sys.argv[1]](sys.argv[2:])
