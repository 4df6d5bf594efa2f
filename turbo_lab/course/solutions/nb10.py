"""Solutions of notebook 10."""

from __future__ import annotations

import math
from types import MappingProxyType


def bubble(stages: int, micro_batches: int) -> float:
    """Of m + p - 1 slots, p - 1 are spent on filling and draining."""
    return (stages - 1) / (micro_batches + stages - 1)


def round_s(stage_s: list[float], micro_batches: int) -> float:
    """The slowest stage serves all m; with few of them, a token waits for its own way around."""
    return max(sum(stage_s), micro_batches * max(stage_s))


def kept(schedule: str, stages: int, stage: int, micro_batches: int) -> int:
    """GPipe: all. 1F1B: those that are between this stage and the end of the pipeline."""
    return micro_batches if schedule == "GPipe" else min(micro_batches, stages - stage)


def loads(logits: list[list[float]], k: int) -> list[int]:
    """Each token counts once for each of its k best experts; of equals the lower number wins."""
    found = [0] * len(logits[0])
    for row in logits:
        for expert in sorted(range(len(row)), key=lambda e: (-row[e], e))[:k]:
            found[expert] += 1
    return found


def dropped(loads: list[int], factor: float) -> float:
    """What exceeds an expert's places is lost, whatever room the others have."""
    places = math.ceil(factor * sum(loads) / len(loads))
    return sum(max(0, load - places) for load in loads) / sum(loads)


def sent(tokens: int, k: int, ranks: int) -> float:
    """T/n tokens, k copies of each, (n-1)/n of them to other ranks, and the same way back."""
    return 2 * k * tokens / ranks * (ranks - 1) / ranks


SOLUTIONS = MappingProxyType({
    "10.1": bubble,
    "10.2": round_s,
    "10.3": kept,
    "10.4": loads,
    "10.5": dropped,
    "10.6": sent,
})  # fmt: skip
