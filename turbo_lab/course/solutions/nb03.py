"""Solutions of notebook 03."""

from __future__ import annotations

from math import comb
from types import MappingProxyType
from typing import Any


def percentile(samples: list[float], p: float) -> float:
    """Linear interpolation: rank p/100 * (n - 1), between the two nearest samples.

    The source's ``sorted[int(n * 0.95) - 1]`` is right for n = 20 by another definition (nearest
    rank) and too low for most other n; its ``sorted[n // 2]`` is the upper of two middles.
    """
    ordered = sorted(samples)  # a copy: the caller's order stays
    rank = p / 100 * (len(ordered) - 1)
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def samples_to_certify(p: float, confidence: float) -> int:
    """The smallest n for which at most one sample in the tail is unlikely enough.

    P[Bin(n, 1 - p) <= 1] <= 1 - confidence: LoadGen's rule. Twenty samples are far too few for
    P95, which needs 130 at 99 %.
    """
    tail, n = 1 - p / 100, 2
    while sum(comb(n, k) * tail**k * (1 - tail) ** (n - k) for k in (0, 1)) > 1 - confidence:
        n += 1
    return n


def ttft_and_tpot(
    chunks: list[tuple[float, str, int]], output_tokens: int
) -> tuple[float | None, float | None]:
    """Chunks are (seconds after sending, text, tokens); those without text say nothing.

    TPOT divides by the tokens that came after the first chunk, which TTFT has paid for.
    """
    shown = [chunk for chunk in chunks if chunk[1]]
    if not shown:
        return None, None
    first_s, _, first_tokens = shown[0]
    later_tokens = output_tokens - first_tokens
    if later_tokens < 1:
        return first_s, None  # one step has no pace; 0 would be a false measurement
    return first_s, (shown[-1][0] - first_s) / later_tokens


def attainment(
    requests: list[dict[str, Any]], ttft_slo_s: float, tpot_slo_s: float
) -> float | None:
    """The share of all sent requests that met both limits; a failed one met none.

    An undefined TPOT (one-token reply) cannot miss its limit.
    """
    if not requests:
        return None
    good = 0
    for request in requests:
        in_time = request["ok"] and request["ttft_s"] <= ttft_slo_s
        if in_time and (request["tpot_s"] is None or request["tpot_s"] <= tpot_slo_s):
            good += 1
    return good / len(requests)


def latencies_from_schedule(service_s: list[float], interval_s: float) -> list[float]:
    """One slot, request i due at i * interval: it waits until the slot is free.

    Counting from the moment of sending would hide that wait (coordinated omission).
    """
    latencies, free_at_s = [], 0.0
    for number, duration_s in enumerate(service_s):
        due_s = number * interval_s
        free_at_s = max(due_s, free_at_s) + duration_s
        latencies.append(free_at_s - due_s)
    return latencies


def three_means(requests: list[tuple[int, float]]) -> tuple[float, float, float]:
    """Requests are (output tokens, TPOT): the mean per request, per gap, per token."""
    by_request = sum(tpot for _, tpot in requests) / len(requests)
    by_gap = sum((n - 1) * tpot for n, tpot in requests) / sum(n - 1 for n, _ in requests)
    by_token = sum(n * tpot for n, tpot in requests) / sum(n for n, _ in requests)
    return by_request, by_gap, by_token


SOLUTIONS = MappingProxyType({
    "03.1": percentile,
    "03.2": samples_to_certify,
    "03.3": ttft_and_tpot,
    "03.4": attainment,
    "03.5": latencies_from_schedule,
    "03.6": three_means,
})  # fmt: skip
