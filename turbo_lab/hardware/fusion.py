"""Operator fusion on this machine: the same chain of small operations, eager and compiled.

A norm and a gated activation over (tokens, width) move little arithmetic and many bytes. Run one by
one, each operation reads and writes the whole array; fused, every value is loaded once.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.errors import MissingDependencyError, UnmeasuredError

# Whole-array reads and writes of each eager operation: square (1+1), mean (1), scale (1+1),
# weight (1+1), silu (1+1), product (2+1); fused: x and gate in, result out.
EAGER_PASSES, FUSED_PASSES = 12, 3
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class FusionTimes:
    """Seconds of the chain. ``cold_s``: the first compiled call, with the compiler's work in it."""

    eager_s: float
    compiled_s: float
    cold_s: float
    tokens: int
    width: int
    largest_difference: float

    @property
    def speedup(self) -> float:
        """Eager over compiled time, both in steady state."""
        return self.eager_s / self.compiled_s

    @property
    def calls_to_pay_back(self) -> float:
        """Calls after which the compiler's work is paid; infinite where nothing is gained."""
        gain_s = self.eager_s - self.compiled_s
        return (self.cold_s - self.compiled_s) / gain_s if gain_s > 0 else math.inf


def predicted_fusion_speedup() -> float:
    """Bytes of the eager chain over those of the fused one; both are bound by memory."""
    return EAGER_PASSES / FUSED_PASSES


def probe_fusion(*, tokens: int = 4096, width: int = 576, budget_s: float = 1.0) -> FusionTimes:
    """Measure in a process of its own, so that the first compiled call is really cold.

    Raises MissingDependencyError without torch, UnmeasuredError without a C++ compiler, when the
    compiler fails, or when it takes longer than five minutes.
    """
    if host.package_version("torch") is None:
        raise MissingDependencyError("torch", needed_for="comparing eager and compiled code")
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        raise UnmeasuredError("torch.compile needs a C++ compiler on a CPU, and none is installed")
    command = [sys.executable, "-m", "turbo_lab.hardware.fusion",
               str(tokens), str(width), str(budget_s)]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise UnmeasuredError(f"compiling took longer than {TIMEOUT_S:.0f} s") from error
    if done.returncode:
        raise UnmeasuredError(f"compiling failed: {done.stderr[-400:].strip()}")
    return FusionTimes(**json.loads(done.stdout.splitlines()[-1]))


def measure_fusion(*, tokens: int, width: int, budget_s: float) -> FusionTimes:
    """Measure in this process."""
    import torch

    torch.manual_seed(0)
    x, gate, weight = torch.randn(tokens, width), torch.randn(tokens, width), torch.randn(width)

    def chain(x: Any, gate: Any, weight: Any) -> Any:
        scale = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
        return torch.nn.functional.silu(gate) * (x * scale * weight)

    compiled = torch.compile(chain, fullgraph=True)
    start = time.perf_counter()
    result = compiled(x, gate, weight)
    cold_s = time.perf_counter() - start
    return FusionTimes(
        eager_s=_best(lambda: chain(x, gate, weight), budget_s),
        compiled_s=_best(lambda: compiled(x, gate, weight), budget_s),
        cold_s=cold_s,
        tokens=tokens,
        width=width,
        largest_difference=(result - chain(x, gate, weight)).abs().max().item(),
    )


def _best(work: Any, budget_s: float) -> float:
    best, deadline = math.inf, time.perf_counter() + budget_s
    while best is math.inf or time.perf_counter() < deadline:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    found = measure_fusion(
        tokens=int(sys.argv[1]), width=int(sys.argv[2]), budget_s=float(sys.argv[3])
    )
    print(json.dumps(asdict(found)))
