"""What a GPU can do, and how long a 7B-shaped decoder takes on it beside the roofline's bounds.

Self-contained: Python and torch, nothing else. Under six minutes on one GPU.

    python benchmarks/gpu_check.py --out gpu_check.json
    python benchmarks/gpu_check.py --device cpu --tiny      # the same path, seconds on a laptop

Weights are random: times do not depend on them. ``lower`` is max(operations / peak, bytes /
bandwidth), ``upper`` the sum, from ceilings of the same run; a time below ``lower`` is an error.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional

Seconds = Callable[[Callable[[], object]], float]


@dataclass(frozen=True)
class Shape:
    """A Llama-like decoder without biases, output head not tied. Defaults: Llama-2-7B."""

    layers: int = 32
    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 32
    head_dim: int = 128
    intermediate: int = 11008
    vocab: int = 32000

    @property
    def layer_weights(self) -> int:
        """Weights of one layer, norms left out."""
        kv = self.kv_heads * self.head_dim
        return 2 * self.hidden**2 + 2 * self.hidden * kv + 3 * self.hidden * self.intermediate

    def counts(self, *, batch: int, new: int, past: int, element: int) -> tuple[float, float]:
        """(operations, least bytes) of one step: no masked scores, no whole embedding."""
        head, inner = self.vocab * self.hidden, self.layers * self.layer_weights
        pairs = new * past + new * (new + 1) / 2
        attention = 4.0 * self.layers * self.heads * self.head_dim * pairs
        kv_bytes = 2 * self.layers * self.kv_heads * self.head_dim * element
        flops = batch * (2.0 * new * inner + 2.0 * head + attention)
        return flops, float((inner + head) * element + batch * (past + new) * kv_bytes)


SEVEN_B = Shape()
TINY = Shape(2, 64, heads=4, kv_heads=2, head_dim=16, intermediate=128, vocab=256)


class Decoder:
    """A forward pass with a cache of fixed size, without position encoding and norm weights."""

    def __init__(self, shape: Shape, *, device: str, dtype: torch.dtype) -> None:
        self.shape, self.device, self.dtype = shape, device, dtype
        h, wide, kv = shape.hidden, shape.intermediate, shape.kv_heads * shape.head_dim
        sizes = ((h + 2 * kv, h), (h, h), (2 * wide, h), (h, wide))
        self.embedding, self.head = self._weight(shape.vocab, h), self._weight(shape.vocab, h)
        self.layers = [[self._weight(*size) for size in sizes] for _ in range(shape.layers)]

    def _weight(self, rows: int, columns: int) -> torch.Tensor:
        values = torch.empty(rows, columns, device=self.device, dtype=self.dtype)
        return values.normal_(0, 1 / math.sqrt(columns))

    def new_cache(self, batch: int, length: int) -> list[list[torch.Tensor]]:
        """Keys and values of every layer, (B, H_kv, length, D) each, random."""
        size = (batch, self.shape.kv_heads, length, self.shape.head_dim)
        kind = {"device": self.device, "dtype": self.dtype}
        return [[torch.randn(size, **kind), torch.randn(size, **kind)] for _ in self.layers]

    @torch.inference_mode()
    def forward(self, ids: torch.Tensor, cache: list, *, past: int) -> torch.Tensor:
        """Logits of the last position: (B, vocab). Writes the new keys and values at ``past``."""
        x = functional.embedding(ids, self.embedding)
        for (qkv, out, gate_up, down), layer_cache in zip(self.layers, cache, strict=True):
            x = x + self._attention(_norm(x) @ qkv.t(), layer_cache, past) @ out.t()
            gate, up = (_norm(x) @ gate_up.t()).chunk(2, dim=-1)
            x = x + (functional.silu(gate) * up) @ down.t()
        return _norm(x[:, -1]) @ self.head.t()

    def _attention(self, qkv: torch.Tensor, cache: list, past: int) -> torch.Tensor:
        s, (keys, values), (batch, tokens, _) = self.shape, cache, qkv.shape
        kv, end = s.kv_heads * s.head_dim, past + tokens
        parts = qkv.split([s.hidden, kv, kv], dim=-1)
        q, k, v = (p.view(batch, tokens, -1, s.head_dim).transpose(1, 2) for p in parts)
        keys[:, :, past:end], values[:, :, past:end] = k, v
        mixed = functional.scaled_dot_product_attention(
            q, keys[:, :, :end], values[:, :, :end], is_causal=tokens > 1 and past == 0,
            enable_gqa=s.heads != s.kv_heads,
        )  # fmt: skip
        return mixed.transpose(1, 2).reshape(batch, tokens, s.hidden)


def _norm(x: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, (x.shape[-1],))


def timer(device: str) -> Seconds:
    """Seconds of one call: events on a GPU, the wall clock on a CPU."""

    def wall(work: Callable[[], object]) -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def events(work: Callable[[], object]) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    return wall if device == "cpu" else events


def samples(work: Callable[[], object], seconds: Seconds, budget_s: float) -> list[float]:
    """Times of repeated calls within the budget, three at least, warm-up thrown away."""
    out, deadline = [], time.perf_counter() + budget_s + seconds(work) + seconds(work)
    while len(out) < 3 or (time.perf_counter() < deadline and len(out) < 200):
        out.append(seconds(work))
    return out


def matmul_rates(device: str, seconds: Seconds, sides: tuple[int, ...], budget_s: float) -> dict:
    """Best operations/s per dtype; None with the reason where the product does not exist."""
    rates: dict = {}
    for name in ("bf16", "fp16", "fp32", "fp8"):
        best, reason = 0.0, None
        for side in sides:
            try:
                times = samples(product(name, side, device), seconds, budget_s)
                best = max(best, 2 * side**3 / min(times))
            except (RuntimeError, AttributeError, TypeError, ValueError) as error:
                reason = str(error).splitlines()[0][:160]
        rates[name] = {"flops": best or None, "reason": None if best else reason}
    return rates


def product(name: str, side: int, device: str) -> Callable[[], object]:
    """One square product. TypeError where this device only emulates the dtype."""
    if device == "cpu" and name in ("fp8", "fp16"):
        raise TypeError(f"{name} products are measured on a GPU only")
    base = torch.randn(side, side, device=device)
    if name == "fp8":
        left, one = base.to(torch.float8_e4m3fn), torch.ones((), device=device)
        return partial(torch._scaled_mm, left, left.t(), one, one, out_dtype=torch.bfloat16)
    left = base.to({"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[name])
    return partial(torch.mm, left, left, out=torch.empty_like(left))


def bandwidths(device: str, seconds: Seconds, sets: tuple[int, ...], budget_s: float) -> list:
    """Best read and copy bandwidth per working set; a copy counts read and written bytes."""
    rows = []
    for size in sets:
        source = torch.ones(size // 4, device=device)
        half, target = source[: size // 8], torch.empty(size // 8, device=device)
        reads = (source.sum, lambda s=source: torch.dot(s, s))
        read = min(min(samples(work, seconds, budget_s)) for work in reads)
        copy = min(samples(lambda t=target, h=half: t.copy_(h), seconds, budget_s))
        rates = {"read_bytes_s": size / read, "copy_bytes_s": size / copy}
        rows.append({"working_set_bytes": size, **rates})
    return rows


@dataclass(frozen=True)
class Bench:
    """What every step is measured with. ``deadline``: no step starts after it."""

    model: Decoder
    seconds: Seconds
    budget_s: float
    peak: float
    bandwidth: float
    deadline: float

    def step(self, phase: str, batch: int, tokens: int, graph: bool) -> dict:
        """Measure one prefill or decode step and put its bounds beside it."""
        shape, new = self.model.shape, tokens if phase == "prefill" else 1
        past = tokens - new
        element = torch.finfo(self.model.dtype).bits // 8
        flops, moved = shape.counts(batch=batch, new=new, past=past, element=element)
        compute_s, memory_s = flops / self.peak, moved / self.bandwidth
        row = {"phase": phase, "batch": batch, "tokens": tokens, "graph": graph, "flops": flops,
               "bytes": moved, "lower_s": max(compute_s, memory_s), "upper_s": compute_s + memory_s,
               "samples_s": None, "median_s": None, "ratio": None, "reason": None}  # fmt: skip
        if time.perf_counter() > self.deadline:
            return {**row, "reason": "out of time"}
        try:
            cache = self.model.new_cache(batch, tokens)
            ids = torch.randint(0, shape.vocab, (batch, new), device=self.model.device)
            work = partial(self.model.forward, ids, cache, past=past)
            times = samples(captured(work) if graph else work, self.seconds, self.budget_s)
        except RuntimeError as error:  # out of memory, or a kernel this build lacks
            return {**row, "reason": str(error).splitlines()[0][:160]}
        middle = statistics.median(times)
        return {**row, "samples_s": times, "median_s": middle, "ratio": middle / row["lower_s"]}


def captured(work: Callable[[], object]) -> Callable[[], object]:
    """The work as one CUDA graph: the host's launches are paid once, at capture."""
    work()  # before the capture, so that the libraries have their workspaces
    torch.cuda.synchronize()
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
        work()
    return graph.replay


def run(*, device: str, tiny: bool, minutes: float) -> dict:
    """Everything: ceilings, then steps. ``minutes`` is an upper limit; what is left out is said."""
    deadline, seconds = time.perf_counter() + minutes * 60, timer(device)
    budget_s, gpu = 0.02 if tiny else 0.5, device != "cpu"
    shape, dtype = (TINY, torch.float32) if tiny else (SEVEN_B, torch.bfloat16)
    rates = matmul_rates(device, seconds, (64, 128) if tiny else (4096, 8192), budget_s)
    sets = (2**20, 2**22) if tiny else (2**28, 2**30, 2**32)
    memory = bandwidths(device, seconds, sets, budget_s)
    rows = memory if tiny else memory[-1:]  # tiny steps stay inside the caches
    bandwidth = max(max(r["read_bytes_s"], r["copy_bytes_s"]) for r in rows)
    peak = rates["fp32" if tiny else "bf16"]["flops"]
    model = Decoder(shape, device=device, dtype=dtype)
    bench = Bench(model, seconds, budget_s, peak, bandwidth, deadline)
    points = [("prefill", 1, n, False) for n in ((8, 32) if tiny else (128, 512, 1024, 2048))]
    contexts, batches = ((16, 32), (1, 4)) if tiny else ((512, 2048), (1, 4, 16, 64))
    points += [("decode", b, s, g) for s in contexts for b in batches for g in sorted({False, gpu})]
    machine = {"device": torch.cuda.get_device_name() if gpu else platform.machine(),
               "torch": torch.__version__, "cuda": torch.version.cuda,
               "memory_bytes": torch.cuda.mem_get_info()[1] if gpu else None,
               "threads": torch.get_num_threads()}  # fmt: skip
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    steps = [bench.step(*point) for point in points]
    return {"schema": "gpu_check/1", "created_at": created, "machine": machine,
            "shape": asdict(shape), "dtype": str(dtype).split(".")[1], "tiny": tiny,
            "matmul": rates, "bandwidth": memory, "peak_flops": peak,
            "bandwidth_bytes_s": bandwidth, "steps": steps}  # fmt: skip


def label(step: dict) -> str:
    """Phase, batch, tokens, and how it ran."""
    kind = "graph" if step["graph"] else "eager"
    return f"{step['phase']:7} {step['batch']:3} {step['tokens']:6} {kind}"


def above_roof(record: dict) -> list[str]:
    """Steps that were faster than their lower bound, with 2 % for the ceilings' own noise."""
    too_fast = (s for s in record["steps"] if min(s["samples_s"] or [9e9]) < s["lower_s"] * 0.98)
    return [label(s) for s in too_fast]


def show(record: dict) -> None:
    """Print the ceilings and the table."""
    print(f"{record['machine']['device']}, torch {record['machine']['torch']}")
    for name, rate in record["matmul"].items():
        print(f"  {name:5} {(rate['flops'] or 0) / 1e12:8.1f} TFLOP/s {rate['reason'] or ''}")
    for row in record["bandwidth"]:
        print("  " + ", ".join(f"{key} {value:.3g}" for key, value in row.items()))
    print("phase    B  tokens graph   lower    upper  measured  ratio   [ms]")
    for s in record["steps"]:
        times = (s[key] and s[key] * 1e3 for key in ("lower_s", "upper_s", "median_s"))
        cells = (f"{t:8.3f}" for t in (*times, s["ratio"]) if t is not None)
        print(label(s), *cells, f"unmeasured: {s['reason']}" if s["reason"] else "")


def main(arguments: list[str] | None = None) -> int:
    """Command line. Exit code 1 when a step lies above the roof, 2 without the asked device."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to test the script")
    parser.add_argument("--minutes", type=float, default=5.0, help="stop measuring after this")
    parser.add_argument("--out", type=Path, help="write the record here (JSON)")
    options, cuda = parser.parse_args(arguments), torch.cuda.is_available()
    device = ("cuda" if cuda else "cpu") if options.device == "auto" else options.device
    if (device == "cuda" and not cuda) or (device == "cpu" and not options.tiny):
        print("no CUDA device is used here: add --device cpu --tiny", file=sys.stderr)
        return 2
    record = run(device=device, tiny=options.tiny, minutes=options.minutes)
    show(record)
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")
        print(f"record: {options.out}")
    wrong = above_roof(record)
    if wrong:
        print("above the roof (a wrong count or unit):\n  " + "\n  ".join(wrong), file=sys.stderr)
    return 1 if wrong and not options.tiny else 0  # microseconds say nothing about the machine


if __name__ == "__main__":
    raise SystemExit(main())
