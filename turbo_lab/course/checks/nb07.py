"""Exercises of notebook 07: bits with scales, packed tokens, error power, capacity, verdicts."""

from __future__ import annotations

import math
from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case


def _symmetric(values: list[float], bits: int) -> list[float]:
    top = max(abs(v) for v in values)
    step = top / (2 ** (bits - 1) - 1) if top else 1.0
    return [round(v / step) * step for v in values]


def _stays_in_range(quantize: Any) -> str | None:
    """The smallest and the largest value of a group are on its grid."""
    values = [-3.0, 0.25, 1.0, 9.0]
    found = quantize(values, 4)
    if math.isclose(found[0], -3.0) and math.isclose(found[3], 9.0):
        return None
    return "With the smallest value and the range stored, both ends are exact."


def _equal_values_survive(quantize: Any) -> str | None:
    """A group without a range must not divide by zero."""
    try:
        found = quantize([2.5, 2.5], 4)
    except ZeroDivisionError:
        return "All values equal: the range is 0, so the step is 0. Do not divide by it."
    return None if found == [2.5, 2.5] else "Equal values come back as they are."


_ROWS = [("a", -0.1, 0.2), ("b", 0.01, 0.3), ("c", -0.5, -0.2), ("d", 0.0, 0.4)]

EXERCISES = (
    Exercise(
        id="07.1",
        task="Bits per value of a group that shares a scale and a smallest value: "
        "bits_per_value(bits, group, scale_bits, minimum_bits)",
        cases=(
            case(4, 64, 16, 16, gives=4.5),
            case(4, 32, 16, 16, gives=5.0, hint="A smaller group pays more for its scale."),
            case(8, 64, 16, 0, gives=8.25),
        ),
        mistakes=(
            Mistake("Scale and smallest value take bits too.", lambda b, g, s, m: float(b)),
            Mistake("They are shared by the group, not stored for each value.",
                    lambda b, g, s, m: float(b + s + m)),
        ),
    ),
    Exercise(
        id="07.2",
        task="How many tokens are packed, when sinks and recent tokens stay whole and only full "
        "blocks are packed? packed_tokens(tokens, sinks, recent, block)",
        cases=(
            case(1000, 4, 32, 32, gives=960),
            case(32, 0, 0, 32, gives=32),
            case(31, 0, 0, 32, gives=0, hint="No full block yet."),
            case(20, 4, 32, 32, gives=0, hint="Never negative."),
        ),
        mistakes=(
            Mistake("Only full blocks are packed.", lambda t, s, r, b: max(0, t - s - r)),
            Mistake("Sinks and recent tokens stay whole.", lambda t, s, r, b: t // b * b),
            Mistake("A short text has nothing to pack.", lambda t, s, r, b: (t - s - r) // b * b),
        ),
    ),
    Exercise(
        id="07.3",
        task="Quantise and give back a group with its smallest value and its range stored: "
        "round_trip(values, bits) -> values",
        cases=(
            case([0.0, 1.0, 2.0, 15.0], 4, gives=[0.0, 1.0, 2.0, 15.0]),
            case([0.0, 0.4, 0.6, 3.0], 2, gives=[0.0, 0.0, 1.0, 3.0]),
            case([10.0, 10.4, 13.0], 2, gives=[10.0, 10.0, 13.0],
                 hint="An offset costs nothing when the smallest value is stored."),
        ),
        properties=(_stays_in_range, _equal_values_survive),
        mistakes=(
            Mistake("A symmetric grid spends half its codes on the other sign.", _symmetric),
            Mistake("Round to the nearest code, do not cut.",
                    lambda v, b: [min(v) + math.floor((x - min(v)) / ((max(v) - min(v)) or 1)
                                                      * (2**b - 1))
                                  * (max(v) - min(v)) / (2**b - 1) for x in v]),
        ),
    ),
    Exercise(
        id="07.4",
        task="Tokens of a pool whose blocks are whole: pool_tokens(pool_bytes, block_tokens, "
        "bytes_per_token)",
        cases=(
            case(1 << 30, 128, 46_080, gives=23_296),
            case(1 << 30, 128, 23_040, gives=46_592),
            case(1 << 30, 128, 11_520, gives=93_184, hint="fp8: one byte per value."),
            case(100, 16, 10, gives=0, hint="Not even one block."),
        ),
        mistakes=(
            Mistake("Blocks are whole.", lambda p, b, t: p // t),
        ),
    ),
    Exercise(
        id="07.5",
        task="Which rows show a difference? shown(rows) -> names; a row is (name, low, high) of an "
        "interval of candidate minus reference",
        cases=(
            case(_ROWS, gives=["b", "c"]),
            case([("e", 0.0, 0.0)], gives=[]),
            case([], gives=[]),
        ),
        mistakes=(
            Mistake("Better is a difference too.",
                    lambda rows: [n for n, low, high in rows if low > 0]),
            Mistake("An interval that holds zero shows nothing.",
                    lambda rows: [n for n, low, high in rows if low + high != 0]),
        ),
    ),
)  # fmt: skip
