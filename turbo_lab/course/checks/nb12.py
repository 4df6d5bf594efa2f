"""Exercises of notebook 12: what moves, its bytes, break-even, least bandwidth, what arrives."""

from __future__ import annotations

import math
from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case


def _a_token_is_always_left(answer: Any) -> str | None:
    """Somebody must compute the token whose output is the reply's first."""
    for prompt in range(1, 400):
        left = prompt - answer(prompt, 16)
        if not 1 <= left <= 16:
            return f"Of {prompt} tokens {left} are left to compute; 1 to 16 are wanted."
    return None


def _both_ways_take_the_same_time(answer: Any) -> str | None:
    size, recompute_s, rest_s, fixed_s = 3e7, 5.5, 0.25, 0.25
    moved_s = fixed_s + size / answer(size, recompute_s, rest_s, fixed_s) + rest_s
    if math.isclose(moved_s, recompute_s):
        return None
    return "At the break-even, fixed time + bytes / bandwidth + rest must be the time to recompute."


def _layers_do_not_matter(answer: Any) -> str | None:
    """Twice the rate needs twice the link, and longer prefixes need less."""
    one = answer(4096, 1024, 1e14, 4, 2)
    if not math.isclose(answer(4096, 1024, 2e14, 4, 2), 2 * one):
        return "Chips twice as fast need a link twice as fast."
    if not answer(4096, 8192, 1e14, 4, 2) < one:
        return "A longer prefix costs more operations per byte, so a slower link is enough."
    return None


EXERCISES = (
    Exercise(
        id="12.1",
        task="Tokens of a prompt that travel: moved_tokens(prompt_tokens, block_tokens)",
        cases=(
            case(641, 128, gives=640),
            case(640, 128, gives=512, hint="The last token must be computed to get its output."),
            case(128, 128, gives=0),
            case(300, 128, gives=256, hint="Only whole blocks travel."),
            case(1, 16, gives=0),
        ),
        properties=(_a_token_is_always_left,),
        mistakes=(
            Mistake("A prompt of whole blocks leaves its last block behind.",
                    lambda p, b: p // b * b),
            Mistake("Only whole blocks travel.", lambda p, b: p - 1),
        ),
    ),
    Exercise(
        id="12.2",
        task="Bytes of the cache of so many tokens: "
        "cache_bytes(tokens, layers, kv_heads, head_dim, element_bytes)",
        cases=(
            case(640, 30, 3, 64, 4, gives=29_491_200),
            case(1, 80, 8, 128, 2, gives=327_680, hint="A token of Llama-3-70B in 16 bits."),
            case(0, 30, 3, 64, 4, gives=0),
        ),
        mistakes=(
            Mistake("Keys and values: twice.", lambda t, n, h, d, e: t * n * h * d * e),
            Mistake("Every layer has its own.", lambda t, n, h, d, e: t * 2 * h * d * e),
            Mistake("Count the bytes of an element.", lambda t, n, h, d, e: t * 2 * n * h * d),
        ),
    ),
    Exercise(
        id="12.3",
        task="Break-even bandwidth in bytes/s: break_even(size_bytes, recompute_s, rest_s, "
        "fixed_s); float('inf') where no link is fast enough",
        cases=(
            case(3e7, 5.5, 0.25, 0.25, gives=6e6),
            case(1e6, 2.0, 0.0, 0.0, gives=5e5),
            case(1e6, 0.3, 0.1, 0.4, gives=math.inf,
                 hint="The fixed time alone is longer than computing."),
            case(1e6, 0.5, 0.25, 0.25, gives=math.inf),
        ),
        properties=(_both_ways_take_the_same_time,),
        mistakes=(
            Mistake("Both ways compute the rest: it is no gain.",
                    lambda s, c, r, f: s / (c - f) if c > r + f else math.inf),
            Mistake("The fixed time is spent before a byte moves.",
                    lambda s, c, r, f: s / (c - r) if c > r + f else math.inf),
            Mistake("A negative bandwidth is none.",
                    lambda s, c, r, f: s / ((c - r - f) or 1e-30)),
        ),
    ),
    Exercise(
        id="12.4",
        task="Mooncake's least bandwidth in bytes/s: least_bandwidth(hidden, prefix_tokens, flops, "
        "heads_per_kv_head, element_bytes); a layer costs 4 p^2 d + 22 p d^2 operations",
        cases=(
            case(8192, 8192, 2.496e15, 8, 2, gives=5.860e9, tolerance=1e-3,
                 hint="The published row says 6 GB/s for eight A800."),
            case(8192, 8192, 7.912e15, 8, 2, gives=18.574e9, tolerance=1e-3),
            case(1, 1, 26.0, 1, 1, gives=2.0),
        ),
        properties=(_layers_do_not_matter,),
        mistakes=(
            Mistake("Query heads share a KV head: the cache is smaller by that.",
                    lambda d, p, f, g, e: 2 * d * e * f / (4 * p * d + 22 * d * d)),
            Mistake("Attention is not all: the projections cost 22 p d^2.",
                    lambda d, p, f, g, e: 2 * d * e * f / (g * 4 * p * d)),
            Mistake("Keys and values: twice.",
                    lambda d, p, f, g, e: d * e * f / (g * (4 * p * d + 22 * d * d))),
        ),
    ),
    Exercise(
        id="12.5",
        task="Bytes of int8 with one fp16 scale per group: coded_bytes(values, group)",
        cases=(
            case(64, 64, gives=66),
            case(65, 64, gives=69, hint="A group that is not full has a scale too."),
            case(49_152, 64, gives=50_688),
            case(0, 64, gives=0),
        ),
        mistakes=(
            Mistake("The scales travel too.", lambda v, g: v),
            Mistake("A group that is not full has a scale too.", lambda v, g: v + 2 * (v // g)),
            Mistake("fp16 has two bytes.", lambda v, g: v + -(-v // g)),
        ),
    ),
    Exercise(
        id="12.6",
        task="A connection broke. usable_tokens(arrived, block_tokens): arrived says of each block "
        "whether it came and its digest was right",
        cases=(
            case([True, True, False], 128, gives=256),
            case([True, False, True, True], 128, gives=128,
                 hint="A token attends to all before it; a gap cannot be skipped."),
            case([False, True], 16, gives=0),
            case([], 16, gives=0),
            case([True] * 5, 128, gives=640),
        ),
        mistakes=(
            Mistake("A block behind a gap has nothing to stand on.", lambda a, b: sum(a) * b),
            Mistake("What came before the break is good.", lambda a, b: len(a) * b * all(a)),
            Mistake("Tokens are asked for, not blocks.",
                    lambda a, b: next((i for i, ok in enumerate(a) if not ok), len(a))),
        ),
    ),
)  # fmt: skip
