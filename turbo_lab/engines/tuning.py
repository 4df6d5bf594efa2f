"""Which dtype and how many cores this machine should serve with: measured once, then kept.

bfloat16 halves the bytes, but a processor without bfloat16 instructions emulates its products and
loses far more than it gains. So the choice is made by timing the products that one layer of the
bundled model needs, at the batch sizes of decode and prefill, and not by habit.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from turbo_lab.core import host
from turbo_lab.core.errors import EngineError, MissingDependencyError

ROWS = (1, 16, 256)  # decode alone, decode in a batch, prefill
SHAPES = ((576, 960), (576, 3072), (1536, 576))  # qkv, gate and up, down of one layer
DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class CpuSettings:
    """The fastest setting found. ``seconds``: (dtype, threads, rows) to seconds for one layer."""

    dtype: str
    threads: int
    seconds: dict[str, float]
    cpu: str

    @property
    def cores(self) -> tuple[int, ...]:
        """Core ids to bind the engine to."""
        return tuple(host.core_ids()[: self.threads])

    def describe(self) -> str:
        """One line: what was chosen and by how much it won."""
        best = _score(self.seconds, self.dtype, self.threads)
        others = {
            dtype: _score(self.seconds, dtype, self.threads) / best
            for dtype in DTYPES
            if dtype != self.dtype
        }
        rivals = ", ".join(f"{d} takes {r:.1f}x as long" for d, r in others.items())
        return f"{self.dtype} on {self.threads} core(s) of {self.cpu} ({rivals})"


def _name(dtype: str, threads: int, rows: int) -> str:
    return f"{dtype}/{threads}/{rows}"


def _score(seconds: dict[str, float], dtype: str, threads: int) -> float:
    """Geometric mean over the batch sizes, so that no one of them rules."""
    logs = [math.log(seconds[_name(dtype, threads, rows)]) for rows in ROWS]
    return math.exp(sum(logs) / len(logs))


def choose(seconds: dict[str, float]) -> tuple[str, int]:
    """The (dtype, threads) with the lowest score among the measured ones."""
    candidates = {(k.split("/")[0], int(k.split("/")[1])) for k in seconds}
    return min(sorted(candidates), key=lambda c: _score(seconds, *c))


def cpu_settings(*, report: Callable[[str], None] = print) -> CpuSettings:
    """The fastest setting of this machine; measured (about 10 s) when it is not in the cache.

    Raises MissingDependencyError without torch, EngineError when the measurement fails.
    """
    torch_version = host.package_version("torch")
    if torch_version is None:
        raise MissingDependencyError("torch", needed_for="choosing dtype and threads")
    key = f"{host.cpu_name()}-{host.cores_granted()}-{torch_version}"
    path = (
        host.cache_folder() / "machine" / f"{''.join(c if c.isalnum() else '-' for c in key)}.json"
    )
    seconds = _read(path)
    if seconds is None:
        report("Measuring which dtype is faster on this machine (once, about ten seconds)")
        seconds = _measure_in_subprocess()
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.part")
        partial.write_text(json.dumps(seconds, indent=1))
        partial.replace(path)
    dtype, threads = choose(seconds)
    return CpuSettings(dtype, threads, seconds, host.cpu_name())


def _read(path: Path) -> dict[str, float] | None:
    try:
        seconds = json.loads(path.read_text())
        choose(seconds)
    except (OSError, ValueError, KeyError, IndexError):
        return None
    return seconds


def _measure_in_subprocess() -> dict[str, float]:
    """A process of its own: thread settings of torch cannot be changed back reliably."""
    done = subprocess.run(
        [sys.executable, "-m", "turbo_lab.engines.tuning"], capture_output=True, text=True
    )
    if done.returncode:
        raise EngineError(f"the dtype measurement failed:\n{done.stderr[-1000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure() -> dict[str, float]:
    """Seconds per layer for every dtype, thread count and batch size (minimum over repeats)."""
    import torch

    cores = host.cores_granted()
    seconds: dict[str, float] = {}
    for threads in sorted({cores, max(1, cores // 2)}):
        torch.set_num_threads(threads)
        for dtype in DTYPES:
            kind = getattr(torch, dtype)
            weights = [torch.randn(n, k).to(kind) for k, n in SHAPES]
            for rows in ROWS:
                inputs = [torch.randn(rows, k).to(kind) for k, _ in SHAPES]
                seconds[_name(dtype, threads, rows)] = _best_of(
                    lambda w=weights, x=inputs: [
                        torch.nn.functional.linear(a, b) for a, b in zip(x, w, strict=True)
                    ]
                )
    return seconds


def _best_of(work: Callable[[], object], *, budget_s: float = 0.4) -> float:
    """Shortest time of one call: other load can only make a call slower."""
    work()
    best, deadline = math.inf, time.perf_counter() + budget_s
    while True:
        start = time.perf_counter()
        work()
        now = time.perf_counter()
        best = min(best, now - start)
        if now > deadline:
            return best


if __name__ == "__main__":
    print(json.dumps(measure()))
