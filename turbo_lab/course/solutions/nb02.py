"""Solutions of notebook 02."""

from __future__ import annotations

import math
from types import MappingProxyType


def bounds_s(
    flops: float, bytes_moved: float, peak_flops: float, bandwidth_bytes_s: float
) -> tuple[float, float]:
    """Perfect overlap leaves the longer of the two times; no overlap leaves both."""
    compute_s, memory_s = flops / peak_flops, bytes_moved / bandwidth_bytes_s
    return max(compute_s, memory_s), compute_s + memory_s


def crossover_tokens(
    peak_flops: float, bandwidth_bytes_s: float, bytes_per_parameter: float
) -> float:
    """2 * B * P / peak = P * bytes / bandwidth, solved for B."""
    return bytes_per_parameter * peak_flops / bandwidth_bytes_s / 2


def decode_bytes(
    parameters: int,
    bytes_per_parameter: float,
    kv_bytes_per_token: int,
    batch: int,
    context_tokens: int,
) -> float:
    """Weights once for the whole batch, the cache once for each request."""
    return parameters * bytes_per_parameter + batch * context_tokens * kv_bytes_per_token


def merge(out_a: float, lse_a: float, out_b: float, lse_b: float) -> tuple[float, float]:
    """Weights exp(lse), with the larger one taken out first so that nothing overflows."""
    top = max(lse_a, lse_b)
    weight_a, weight_b = math.exp(lse_a - top), math.exp(lse_b - top)
    total = weight_a + weight_b
    return (weight_a * out_a + weight_b * out_b) / total, top + math.log(total)


def above_roof(
    points: list[tuple[str, float, float, float]], peak_flops: float, bandwidth_bytes_s: float
) -> list[str]:
    """Faster than the lower bound is impossible."""
    return [
        name
        for name, flops, bytes_moved, seconds in points
        if seconds < max(flops / peak_flops, bytes_moved / bandwidth_bytes_s)
    ]


SOLUTIONS = MappingProxyType({
    "02.1": bounds_s,
    "02.2": crossover_tokens,
    "02.3": decode_bytes,
    "02.4": merge,
    "02.5": above_roof,
})  # fmt: skip
