"""Exercises of notebook 02: bounds, crossover, bytes of a step, merging attention, the roof."""

from __future__ import annotations

import contextlib
import math
from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case


def _merge_survives_large_scores(merge: Any) -> str | None:
    """Log-sum-exps of a thousand must not overflow: subtract the larger one first."""
    with contextlib.suppress(OverflowError):
        value, lse = merge(1.0, 1000.0, 3.0, 1000.0)
        if math.isclose(value, 2.0) and math.isclose(lse, 1000.0 + math.log(2)):
            return None
    return "Log-sum-exps of 1,000 overflow exp(). Subtract the larger one before exp()."


def _merge_does_not_mind_the_order(merge: Any) -> str | None:
    """Merging A with B is merging B with A."""
    one, other = merge(1.0, 0.3, 5.0, 2.0), merge(5.0, 2.0, 1.0, 0.3)
    if all(math.isclose(a, b) for a, b in zip(one, other, strict=True)):
        return None
    return "Swapping the two parts must not change the result."


def _linear_merge(a: float, lse_a: float, b: float, lse_b: float) -> tuple[float, float]:
    return (lse_a * a + lse_b * b) / (lse_a + lse_b), lse_a + lse_b


_POINTS = [("decode", 2e9, 1e9, 0.5), ("prefill", 400e9, 1e9, 5.0), ("odd", 2e9, 1e9, 0.5e-3)]
_EDGE = [("at the roof", 10e9, 1e9, 0.1), ("just above", 10e9, 1e9, 0.099)]

EXERCISES = (
    Exercise(
        id="02.1",
        task="Least time with perfect overlap, and time without any: "
        "bounds_s(flops, bytes_moved, peak_flops, bandwidth_bytes_s) -> (lower, upper)",
        cases=(
            case(100e9, 1e9, 100e9, 10e9, gives=(1.0, 1.1)),
            case(1e9, 10e9, 100e9, 10e9, gives=(1.0, 1.01)),
            case(50e9, 5e9, 100e9, 10e9, gives=(0.5, 1.0), hint="At the ridge: a factor of two."),
        ),
        mistakes=(
            Mistake("The slower of the two sets the lower bound.",
                    lambda f, b, p, w: (min(f / p, b / w), f / p + b / w)),
            Mistake("The upper bound is their sum.",
                    lambda f, b, p, w: (max(f / p, b / w), 2 * max(f / p, b / w))),
        ),
    ),
    Exercise(
        id="02.2",
        task="From how many tokens per step are weight products bound by compute? "
        "crossover_tokens(peak_flops, bandwidth_bytes_s, bytes_per_parameter)",
        cases=(
            case(1.97e14, 8.2e11, 2, gives=240.24, tolerance=1e-4),
            case(1.97e14, 8.2e11, 1, gives=120.12, tolerance=1e-4,
                 hint="8-bit weights, the same arithmetic: half the bytes, half the batch."),
            case(100e9, 10e9, 4, gives=20.0),
        ),
        mistakes=(
            Mistake("A multiply-add is two operations.", lambda p, w, b: b * p / w),
            Mistake("Fewer bytes per weight need a smaller batch.", lambda p, w, b: 2 * p / w / b),
            Mistake("That is the ridge; the weights' bytes are missing.", lambda p, w, b: p / w),
        ),
    ),
    Exercise(
        id="02.3",
        task="Bytes that one decode step reads: decode_bytes(parameters, bytes_per_parameter, "
        "kv_bytes_per_token, batch, context_tokens)",
        cases=(
            case(1000, 2, 10, 1, 0, gives=2000),
            case(1000, 2, 10, 4, 50, gives=4000),
            case(134_515_008, 2, 23_040, 16, 1024, gives=646_517_376),
        ),
        mistakes=(
            Mistake("The batch shares the weights; they are read once.",
                    lambda n, b, kv, batch, s: batch * (n * b + kv * s)),
            Mistake("Each request has a cache of its own.",
                    lambda n, b, kv, batch, s: n * b + kv * s),
        ),
    ),
    Exercise(
        id="02.4",
        task="Attention was computed over two halves of the context, each with its own log-sum-exp "
        "of the scores. merge(out_a, lse_a, out_b, lse_b) -> (out, lse) of the whole",
        cases=(
            case(1.0, 1.0, 3.0, 1.0, gives=(2.0, 1.0 + math.log(2))),
            case(1.0, math.log(3), 5.0, 0.0, gives=(2.0, math.log(4))),
            case(7.0, 2.0, 7.0, -1.0, gives=(7.0, math.log(math.exp(2) + math.exp(-1)))),
        ),
        properties=(_merge_survives_large_scores, _merge_does_not_mind_the_order),
        mistakes=(
            Mistake("The halves do not weigh the same.",
                    lambda a, x, b, y: ((a + b) / 2, math.log(math.exp(x) + math.exp(y)))),
            Mistake("The weights are exp(lse), not lse.", _linear_merge),
        ),
    ),
    Exercise(
        id="02.5",
        task="Which measurements are impossible? above_roof(points, peak_flops, "
        "bandwidth_bytes_s) -> names; a point is (name, flops, bytes_moved, seconds)",
        cases=(
            case(_POINTS, 100e9, 10e9, gives=["odd"]),
            case(_EDGE, 100e9, 10e9, gives=["just above"], hint="A point on the roof is possible."),
            case([("quick product", 200e9, 1e9, 1.0)], 100e9, 10e9, gives=["quick product"]),
            case([("quick read", 1e9, 1e9, 0.05)], 100e9, 10e9, gives=["quick read"]),
            case([], 100e9, 10e9, gives=[]),
        ),
        mistakes=(
            Mistake("Below the peak is not enough: with few operations per byte the roof is lower.",
                    lambda points, p, w: [n for n, f, b, s in points if f / s > p]),
            Mistake("A point must stay below both ceilings.",
                    lambda points, p, w: [n for n, f, b, s in points if f / s > p and b / s > w]),
        ),
    ),
)  # fmt: skip
