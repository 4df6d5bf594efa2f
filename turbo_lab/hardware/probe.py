"""Measures the ceilings: matrix products per dtype, and memory by working-set size.

Every figure is the best of many tries, because other load can only make a try slower, and a
ceiling must not be too low. Run it as a process of its own (``probe_machine``): the number of
threads cannot be changed back reliably inside a kernel.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.errors import MissingDependencyError, UnmeasuredError, UsageError
from turbo_lab.core.units import KiB, MiB
from turbo_lab.hardware.ceilings import BandwidthPoint, Ceilings, cache_sizes, merge

CPU_SETS = (256 * KiB, 2 * MiB, 16 * MiB, 64 * MiB, 256 * MiB)
GPU_SETS = (16 * MiB, 128 * MiB, 1024 * MiB, 4096 * MiB)
CPU_DTYPES = ("fp32", "bf16", "fp16", "int8")
GPU_DTYPES = ("fp32", "bf16", "fp16", "fp8", "int8")
CPU_SIDES, GPU_SIDES = (256, 512, 1024, 2048), (2048, 4096, 8192)
SLOW_TRY_S = 0.25  # an emulated dtype: larger products would take minutes and show nothing new

Timer = Callable[[Callable[[], object]], float]


def probe_machine(*, device: str = "cpu", budget_s: float = 0.15, repeats: int = 2) -> Ceilings:
    """Measure this machine in processes of their own; the best of ``repeats`` of them.

    ``budget_s``: time for each single figure. Raises MissingDependencyError without torch,
    UnmeasuredError when the process fails.
    """
    if host.package_version("torch") is None:
        raise MissingDependencyError("torch", needed_for="measuring this machine's ceilings")
    command = [sys.executable, "-m", "turbo_lab.hardware.probe", device, str(budget_s)]
    threads = str(host.cores_granted())
    env = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    runs = []
    for _ in range(repeats):
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        if done.returncode:
            raise UnmeasuredError(f"the probe of {device} failed: {done.stderr[-500:].strip()}")
        runs.append(Ceilings.from_dict(json.loads(done.stdout.splitlines()[-1])))
    return merge(runs)


def measure_ceilings(
    *,
    device: str = "cpu",
    budget_s: float = 0.15,
    sets: tuple[int, ...] | None = None,
    sides: tuple[int, ...] | None = None,
    dtypes: tuple[str, ...] | None = None,
) -> Ceilings:
    """Measure in this process, with the threads that torch has now.

    Args:
        device: ``cpu`` or ``cuda``.
        budget_s: time for each figure.
        sets: working-set sizes in bytes.
        sides: sides of the square matrices.
        dtypes: number formats of the products.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError("torch", needed_for="measuring ceilings") from error
    if device not in ("cpu", "cuda"):
        raise UsageError(f"device is {device!r}; allowed: cpu, cuda")
    gpu = device == "cuda"
    if gpu and not torch.cuda.is_available():
        raise UnmeasuredError("torch sees no CUDA device here")
    timer = _gpu_timer(torch) if gpu else _cpu_seconds
    rates, reasons = {}, {}
    for dtype in dtypes or (GPU_DTYPES if gpu else CPU_DTYPES):
        rates[dtype], reason = _matmul_rate(
            torch, dtype, device, sides or (GPU_SIDES if gpu else CPU_SIDES), timer, budget_s
        )
        if reason:
            reasons[dtype] = reason
    points, spread = [], None
    for size in sets or (GPU_SETS if gpu else CPU_SETS):
        point, spread = _bandwidth(torch, size, device, timer, budget_s)
        points.append(point)
    return Ceilings(
        device=torch.cuda.get_device_name() if gpu else host.cpu_name(),
        threads=torch.get_num_threads(),
        cores=host.cores_granted(),
        cache_bytes=cache_sizes(),
        matmul_flops=rates,
        reasons=reasons,
        bandwidth=tuple(points),
        core_speedup=None if gpu else _core_speedup(torch, budget_s),
        repeat_spread=spread,
    )


def _matmul_rate(
    torch: Any, dtype: str, device: str, sides: tuple[int, ...], timer: Timer, budget_s: float
) -> tuple[float | None, str | None]:
    """Best operations/s over the sides; (None, why) where the product does not exist."""
    best = None
    for side in sides:
        try:
            work = _product(torch, dtype, device, side)
            seconds = min(timer(work), timer(work))  # the first call may set up the library
            slow = seconds > SLOW_TRY_S
            seconds = seconds if slow else _best_of(work, timer, budget_s)
        except (RuntimeError, NotImplementedError, AttributeError, TypeError) as error:
            if best is None:
                return None, f"no {dtype} product here: {str(error).splitlines()[0][:120]}"
            break
        best = max(best or 0.0, 2 * side**3 / seconds)
        if slow:
            break
    return best, None


def _product(torch: Any, dtype: str, device: str, side: int) -> Callable[[], object]:
    """One square product, ``2 * side^3`` operations, weights in the second operand."""
    base = torch.randn(side, side, device=device)
    if dtype == "int8":
        left = (base * 20).to(torch.int8)
        return lambda: torch._int_mm(left, left.t())
    if dtype == "fp8":
        left = base.to(torch.float8_e4m3fn)
        one = torch.ones((), device=device)
        return lambda: torch._scaled_mm(
            left, left.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        )
    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    if dtype not in kinds:
        raise TypeError(f"torch has no product of {dtype} matrices")
    kind = kinds[dtype]
    left, right = base.to(kind), base.t().contiguous().to(kind)
    out = torch.empty(side, side, device=device, dtype=kind)
    return lambda: torch.mm(left, right, out=out)


def _bandwidth(
    torch: Any, size: int, device: str, timer: Timer, budget_s: float
) -> tuple[BandwidthPoint, float]:
    """Read and copy one working set; also how far the halves of the read's tries differ."""
    source = torch.ones(size // 4, device=device)
    half = source[: size // 8]
    target = torch.empty_like(half)
    readers = [lambda: torch.dot(source, source), lambda: source.sum()]
    halves = [min(_best_of(r, timer, budget_s / 2) for r in readers) for _ in range(2)]
    copy_s = _best_of(lambda: target.copy_(half), timer, budget_s)
    spread = abs(halves[0] - halves[1]) / min(halves)
    # A copy touches half of the set twice: source and target together are the working set.
    return BandwidthPoint(size, size / min(halves), size / copy_s), spread


def _core_speedup(torch: Any, budget_s: float) -> float:
    """Rate of an fp32 product on all threads over that on one."""
    threads = torch.get_num_threads()
    work = _product(torch, "fp32", "cpu", 512)
    together = _best_of(work, _cpu_seconds, budget_s)
    torch.set_num_threads(1)
    try:
        alone = _best_of(work, _cpu_seconds, budget_s)
    finally:
        torch.set_num_threads(threads)
    return alone / together


def _cpu_seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _gpu_timer(torch: Any) -> Timer:
    """Seconds between two events around the work, on the device's own clock."""

    def seconds(work: Callable[[], object]) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    return seconds


def _best_of(work: Callable[[], object], timer: Timer, budget_s: float) -> float:
    """Shortest time of one call within the budget; the first call is a warm-up."""
    timer(work)
    best, deadline = math.inf, time.perf_counter() + budget_s
    while True:
        best = min(best, timer(work))
        if time.perf_counter() > deadline:
            return best


if __name__ == "__main__":
    print(measure_ceilings(device=sys.argv[1], budget_s=float(sys.argv[2])).to_json())
