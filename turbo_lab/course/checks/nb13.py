"""Exercises of notebook 13: base-2 merge, a table entry, the bitmap, link bytes, break-even."""

from __future__ import annotations

import contextlib
import math
from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case


def _survives_large_weights(merge: Any) -> str | None:
    """Weights of some thousands must not overflow: only their difference may be an exponent."""
    with contextlib.suppress(OverflowError, ZeroDivisionError):
        value, gamma = merge(1.0, 5000.0, 3.0, 5000.0)
        if math.isclose(value, 2.0) and math.isclose(gamma, 5001.0):
            return None
    return "Weights of 5,000 overflow 2^gamma. Only the difference of the two may be an exponent."


def _does_not_mind_the_order(merge: Any) -> str | None:
    """Merging A with B is merging B with A."""
    one, other = merge(1.0, 0.3, 5.0, 2.0), merge(5.0, 2.0, 1.0, 0.3)
    if all(math.isclose(a, b) for a, b in zip(one, other, strict=True)):
        return None
    return "Swapping the two parts must not change the result."


def _natural(a: float, x: float, b: float, y: float) -> tuple[float, float]:
    gamma = math.log(math.exp(x) + math.exp(y))
    return math.exp(x - gamma) * a + math.exp(y - gamma) * b, gamma


def _swapped(a: float, x: float, b: float, y: float) -> tuple[float, float]:
    share = 1 / (1 + 2 ** (x - y))
    return share * a + (1 - share) * b, math.log2(2**x + 2**y)


def _bigger_code(delta: int, fraction: int, bits: int) -> tuple[int, int]:
    power = 2.0 ** (-delta / 2**fraction)
    addend = round(math.log2(1 + power) * 2**fraction)
    return addend, round(2 * (2**bits - 1) / (1 + power))


def _code_of_real_delta(delta: int, fraction: int, bits: int) -> tuple[int, int]:
    power = 2.0**-delta
    addend = round(math.log2(1 + power) * 2**fraction)
    return addend, round(2 * (2**bits - 1) * power / (1 + power))


def _no_bitmap(bitmap: int, sender: int, hosts: int) -> tuple[int, bool, bool]:
    bitmap |= 1 << sender
    return bitmap, True, bitmap == (1 << hosts) - 1


def _result_twice(bitmap: int, sender: int, hosts: int) -> tuple[int, bool, bool]:
    new = not bitmap >> sender & 1
    bitmap |= 1 << sender
    return bitmap, new, bitmap == (1 << hosts) - 1


def _counting(bitmap: int, sender: int, hosts: int) -> tuple[int, bool, bool]:
    return bitmap + 1, True, bitmap + 1 == hosts


def _no_head(strategy: str, hosts: int, vectors: int, dim: int) -> int:
    return (1 if strategy == "in-network" else hosts - 1) * vectors * dim


def _all_hosts(strategy: str, hosts: int, vectors: int, dim: int) -> int:
    return (1 if strategy == "in-network" else hosts) * vectors * (16 + dim)


def _once(strategy: str, hosts: int, vectors: int, dim: int) -> int:
    return vectors * (16 + dim)


EXERCISES = (
    Exercise(
        id="13.1",
        task="Two parts of a context, each with its output and its base-2 weight. "
        "merge(out_a, gamma_a, out_b, gamma_b) -> (out, gamma)",
        cases=(
            case(1.0, 1.0, 3.0, 1.0, gives=(2.0, 2.0)),
            case(1.0, math.log2(3), 5.0, 0.0, gives=(2.0, 2.0)),
            case(7.0, 2.0, 7.0, -1.0, gives=(7.0, math.log2(4.5))),
        ),
        properties=(_survives_large_weights, _does_not_mind_the_order),
        mistakes=(
            Mistake("The weights are powers of two here, not of e.", _natural),
            Mistake("The heavier part gets the larger share.", _swapped),
            Mistake(
                "The parts do not weigh the same.",
                lambda a, x, b, y: ((a + b) / 2, math.log2(2**x + 2**y)),
            ),
        ),
    ),
    Exercise(
        id="13.2",
        task="One entry of table 1: table_entry(delta, fraction_bits, weight_bits) -> (addend, "
        "weight code of the smaller part); the largest code means one half",
        cases=(
            case(0, 4, 6, gives=(16, 63), hint="Equal parts: the sum is twice as heavy."),
            case(
                16, 4, 6, gives=(9, 42), hint="One part is twice as heavy: a third for the other."
            ),
            case(255, 4, 6, gives=(0, 0)),
            case(8, 3, 3, gives=(5, 5)),
            case(2, 0, 8, gives=(0, 102)),
        ),
        mistakes=(
            Mistake("The code is of the smaller part's weight, at most one half.", _bigger_code),
            Mistake("The key is a code: divide by 2^fraction_bits first.", _code_of_real_delta),
            Mistake(
                "The largest code means one half, not one.",
                lambda d, f, b: (
                    round(math.log2(1 + 2.0 ** (-d / 2**f)) * 2**f),
                    round((2**b - 1) / (1 + 2.0 ** (d / 2**f))),
                ),
            ),
        ),
    ),
    Exercise(
        id="13.3",
        task="A switch gets a packet of one host. accept(bitmap, sender, hosts) -> (new bitmap, "
        "merge it?, send the result?); bit i is set when host i's part is in",
        cases=(
            case(0b000, 1, 3, gives=(0b010, True, False)),
            case(0b101, 1, 3, gives=(0b111, True, True)),
            case(0b010, 1, 3, gives=(0b010, False, False), hint="It was merged before."),
            case(0b111, 2, 3, gives=(0b111, False, False), hint="The result has gone out already."),
        ),
        mistakes=(
            Mistake("A doubled packet must not be merged again.", _no_bitmap),
            Mistake("A doubled packet must not send the result to all once more.", _result_twice),
            Mistake("Counting packets takes a doubled one for another host's.", _counting),
        ),
    ),
    Exercise(
        id="13.4",
        task="Datagram bytes (16 of head, one per value) of a step on the busiest host link, "
        "one direction: link_bytes(strategy, hosts, vectors, dim) for ring, gather, in-network",
        cases=(
            case("in-network", 8, 270, 64, gives=21_600),
            case("ring", 8, 270, 64, gives=151_200),
            case("gather", 4, 10, 128, gives=4_320, hint="The link of host 0 is the busiest."),
            case("ring", 2, 1, 1, gives=17),
        ),
        mistakes=(
            Mistake("The head of a datagram is payload too.", _no_head),
            Mistake("Nobody sends its part to itself.", _all_hosts),
            Mistake(
                "Without a switch that merges, all the others' parts cross the busiest link.", _once
            ),
        ),
    ),
    Exercise(
        id="13.5",
        task="From how many tokens of context do n hosts beat one? break_even_tokens(merge_s, "
        "kv_bytes_per_token, bandwidth_bytes_s, hosts)",
        cases=(
            case(1e-3, 131_072, 3.35e12, 4, gives=1e-3 * 3.35e12 / 131_072 * 4 / 3),
            case(1.0, 1000, 1e6, 2, gives=2000.0),
            case(0.0, 1000, 1e6, 2, gives=0.0, hint="A merge that costs nothing always pays."),
        ),
        mistakes=(
            Mistake("Each host still reads its own share.", lambda m, k, b, n: m * b / k),
            Mistake("What is saved is 1 - 1/n of the reading.", lambda m, k, b, n: m * b / k * n),
        ),
    ),
)
