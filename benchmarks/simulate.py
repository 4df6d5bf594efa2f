"""How fast is the simulator, on one core?

Two runs, all semantics on (token budget, chunked prompts, blocks with a prefix cache, preemption):

* the Azure conversation trace (2023, 19,366 requests) on one replica, several times; where the file
  is not given, a trace of as many requests drawn to its shape;
* synthetic traffic over 64 replicas behind a router, percentiles sketched, memory bounded.

    python benchmarks/simulate.py --trace AzureLLMInferenceTrace_conv.csv
    python benchmarks/simulate.py --requests 27000000        the second run at full size

Rates are given by the wall clock and by the CPU time of this process: on a machine with other work
the first is a lower bound. Exit code 1 when no repetition reaches 50,000 requests per CPU second,
or the second run needs more than 4 GiB.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np

from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.simulate import simulate
from turbo_lab.workload.trace_reader import read_requests
from turbo_lab.workload.trace_request import TraceRequest
from turbo_lab.workload.traces import azure_conversation, draw_trace

LEAST_PER_S, MOST_GIB = 50_000, 4.0
AZURE_REQUESTS = 19_366
REPLICAS, PIECE = 64, 65_536
# An 8-billion-parameter model on one large accelerator, in round figures: invented, not measured.
CALIBRATION = Calibration(
    name="round-figures", source="invented", fixed_s=8e-3, prefill_token_s=25e-6,
    prefill_context_s=1.3e-9, decode_sequence_s=30e-6, context_token_s=40e-9, request_s=2e-3,
    blocks=30_000, block_tokens=16, max_batched_tokens=2048, max_sequences=256,
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both and print them; 1 when a limit is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", help="path of AzureLLMInferenceTrace_conv.csv")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--requests", type=int, default=500_000, help="of the second run")
    parser.add_argument("--router", default="round-robin", help="of the second run")
    asked = parser.parse_args(arguments)
    fast = one_replica(asked.trace, asked.repeats)
    small = many_replicas(asked.requests, asked.router)
    return 0 if fast and small else 1


def one_replica(path: str | None, repeats: int) -> bool:
    """The Azure trace, or one of its shape; whether any repetition is fast enough."""
    if path:
        trace, name = list(read_requests(path)), path.rsplit("/", 1)[-1]
    else:
        rows = draw_trace(azure_conversation(), count=AZURE_REQUESTS, seed=0)
        trace = [TraceRequest(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in rows]
        name = "drawn to the shape of the Azure conversation trace"
    print(f"one replica, {len(trace):,} requests, {name}")
    best = 0.0
    for _ in range(repeats):
        began = time.process_time()
        found = simulate(trace, Engine(CALIBRATION), slo={"ttft": 1.0, "tpot": 0.05})
        per_cpu_s = found.requests / (time.process_time() - began)
        best = max(best, per_cpu_s)
        print(f"  {found.requests / found.wall_s:10,.0f} requests/s, "
              f"{per_cpu_s:10,.0f} per CPU second")  # fmt: skip
    print(f"  best {best:,.0f}, limit {LEAST_PER_S:,}: {'ok' if best >= LEAST_PER_S else 'SLOW'}")
    return best >= LEAST_PER_S


def traffic(count: int, *, rate_per_s: float, seed: int = 0) -> Iterator[TraceRequest]:
    """Poisson arrivals with log-normal lengths, drawn in pieces: memory does not grow."""
    rng = np.random.default_rng(seed)
    now, left = 0.0, count
    while left:
        size = min(left, PIECE)
        times = now + np.cumsum(rng.exponential(1 / rate_per_s, size))
        prompts = np.clip(rng.lognormal(6.5, 0.8, size), 1, 16_000).astype(int)
        replies = np.clip(rng.lognormal(4.9, 0.7, size), 1, 2000).astype(int)
        for row in zip(times.tolist(), prompts.tolist(), replies.tolist(), strict=True):
            yield TraceRequest(*row)
        now, left = float(times[-1]), left - size


def many_replicas(count: int, router: str) -> bool:
    """Synthetic traffic over 64 replicas; whether memory stayed within bounds."""
    began, cpu = time.perf_counter(), time.process_time()
    found = simulate(
        traffic(count, rate_per_s=6.0 * REPLICAS), Engine(CALIBRATION), replicas=REPLICAS,
        router=router, exact=False, slo={"ttft": 1.0, "tpot": 0.05},
    )  # fmt: skip
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    ttft = found.metrics["ttft"]
    print(
        f"{REPLICAS} replicas, {count:,} requests, {router}: {wall_s:.0f} s ({cpu_s:.0f} s of CPU; "
        f"{count / cpu_s:,.0f} requests per CPU second), traffic drawn included; "
        f"{27e6 / count * cpu_s / 60:.1f} minutes of CPU for 27 million\n"
        f"  {found.duration_s / 3600:.2f} h simulated, TTFT P50 {ttft.percentile(50):.3f} s, "
        f"P99 {ttft.percentile(99):.3f} s, attainment {found.slo_attainment:.2%}\n"
        f"  peak memory {gib:.2f} GiB, limit {MOST_GIB:g}: {'ok' if gib <= MOST_GIB else 'OVER'}"
    )
    return gib <= MOST_GIB


if __name__ == "__main__":
    sys.exit(main())
