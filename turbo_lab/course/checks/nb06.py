"""Exercises of notebook 06: fewer bits."""

from __future__ import annotations

from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case

Rows = list[tuple[str, float, int]]
LAYERS: Rows = [("down", 0.30, 30), ("gate", 0.05, 30), ("q", 0.08, 10), ("norm", -0.01, 1)]


def _no_scales(outputs: int, inputs: int, bits: int, group: int, scale_bytes: int) -> int:
    return -(-outputs * inputs * bits // 8)


def _one_scale_per_row(outputs: int, inputs: int, bits: int, group: int, scale_bytes: int) -> int:
    return -(-outputs * inputs * bits // 8) + outputs * scale_bytes


def _groups_over_rows(outputs: int, inputs: int, bits: int, group: int, scale_bytes: int) -> int:
    return -(-outputs * inputs * bits // 8) + -(-outputs * inputs // group) * scale_bytes


def _whole_bytes(outputs: int, inputs: int, bits: int, group: int, scale_bytes: int) -> int:
    return outputs * inputs + outputs * -(-inputs // group) * scale_bytes


def _symmetric_ends(values: list[float], scale: float) -> list[int]:
    return [max(-7, min(7, round(v / scale))) for v in values]


def _cut(values: list[float], scale: float) -> list[int]:
    return [max(-8, min(7, int(v / scale))) for v in values]


def _wraps(values: list[float], scale: float) -> list[int]:
    return [(round(v / scale) + 8) % 16 - 8 for v in values]


def _unsigned(values: list[float], scale: float) -> list[int]:
    return [max(0, min(15, round(v / scale))) for v in values]


def _by_damage(rows: Rows, budget_bytes: int) -> list[str]:
    chosen = []
    for name, damage, size in sorted(rows, key=lambda row: row[1], reverse=True):
        if damage > 0 and size <= budget_bytes:
            chosen.append(name)
            budget_bytes -= size
    return chosen


def _stops_early(rows: Rows, budget_bytes: int) -> list[str]:
    chosen = []
    for name, damage, size in sorted(rows, key=lambda row: row[1] / row[2], reverse=True):
        if damage <= 0 or size > budget_bytes:
            break
        chosen.append(name)
        budget_bytes -= size
    return chosen


def _skips_harmless(rows: Rows, budget_bytes: int) -> list[str]:
    chosen = []
    for name, _, size in sorted(rows, key=lambda row: row[1] / row[2], reverse=True):
        if size <= budget_bytes:
            chosen.append(name)
            budget_bytes -= size
    return chosen


def _no_budget(rows: Rows, budget_bytes: int) -> list[str]:
    ordered = sorted(rows, key=lambda row: row[1] / row[2], reverse=True)
    return [name for name, damage, _ in ordered if damage > 0]


def _product_is_the_whole(answer: Any) -> str | None:
    """Both dividends together are the whole gain."""
    precision, method = answer(0.9, 0.5, 0.4)
    whole = precision * method
    return None if abs(whole - 0.9 / 0.4) < 1e-9 else "Together they must give fp32 over method."


EXERCISES = (
    Exercise(
        id="06.1",
        task="Bytes of a packed matrix with one scale per group along the inputs: "
        "packed_bytes(outputs, inputs, bits, group, scale_bytes)",
        cases=(
            case(576, 576, 4, 64, 2, gives=576 * 576 // 2 + 576 * 9 * 2),
            case(3, 3, 4, 3, 2, gives=5 + 6, hint="Nine codes of four bits need five bytes."),
            case(2, 100, 8, 64, 4, gives=200 + 2 * 2 * 4, hint="The last group of a row is short."),
            case(4, 32, 4, 64, 2, gives=64 + 4 * 2, hint="A group never reaches into another row."),
            case(1536, 576, 8, 576, 4, gives=1536 * 576 + 1536 * 4),
        ),
        mistakes=(
            Mistake("The scales are stored too.", _no_scales),
            Mistake("Each group has a scale of its own, not each row.", _one_scale_per_row),
            Mistake("Groups end with their row; they are not counted over the whole matrix.",
                    _groups_over_rows),
            Mistake("Two codes of four bits share a byte.", _whole_bytes),
        ),
    ),
    Exercise(
        id="06.2",
        task="Whole numbers of int4 for these values: to_int4(values, scale), ties to even",
        cases=(
            case([0.0, 1.0, -1.0], 0.5, gives=[0, 2, -2]),
            case([3.6, -4.4], 0.5, gives=[7, -8], hint="Beyond the ends it saturates."),
            case([4.0], 0.5, gives=[7], hint="Eight does not exist."),
            case([0.9, -0.9], 1.0, gives=[1, -1], hint="Round, do not cut."),
            case([0.5, 1.5, 2.5], 1.0, gives=[0, 2, 2]),
        ),
        mistakes=(
            Mistake("Four bits hold one more number below zero than above.", _symmetric_ends),
            Mistake("Round to the nearest; cutting doubles the largest error.", _cut),
            Mistake("Beyond the range it must saturate, not wrap around.", _wraps),
            Mistake("These codes are signed.", _unsigned),
        ),
    ),
    Exercise(
        id="06.3",
        task="Which values become infinite in fp16: overflows_fp16(values)",
        cases=(
            case([1.0, 65504.0], gives=[False, False], hint="65,504 is the largest value itself."),
            case([65519.0, 65520.0], gives=[False, True],
                 hint="Below the middle to the next step it rounds down."),
            case([-70000.0, 1e38], gives=[True, True], hint="The sign does not help."),
            case([], gives=[]),
        ),
        mistakes=(
            Mistake("A little above the largest value still rounds down to it.",
                    lambda values: [abs(v) > 65504 for v in values]),
            Mistake("Negative values overflow as well.",
                    lambda values: [v >= 65520 for v in values]),
            Mistake("That is the limit of an unsigned 16-bit integer, reached by another road.",
                    lambda values: [abs(v) >= 65536 for v in values]),
            Mistake("3.4e38 is the limit of bf16 and fp32.",
                    lambda values: [abs(v) > 3.4e38 for v in values]),
        ),
    ),
    Exercise(
        id="06.4",
        task="Largest rounding error of a grid from low to high: largest_error(low, high, bits)",
        cases=(
            case(-1.0, 1.0, 8, gives=1 / 255),
            case(0.0, 15.0, 4, gives=0.5),
            case(-1.0, 7.0, 4, gives=8 / 15 / 2),
            case(-20.0, 20.0, 4, gives=40 / 15 / 2, hint="One outlier stretches every step."),
            case(2.0, 2.0, 4, gives=0.0),
        ),
        mistakes=(
            Mistake("2^bits points have one step less.",
                    lambda low, high, bits: (high - low) / 2**bits / 2),
            Mistake("To the nearest point it is half a step at most.",
                    lambda low, high, bits: (high - low) / (2**bits - 1)),
            Mistake("The grid need not lie symmetrically around zero.",
                    lambda low, high, bits: max(abs(low), abs(high)) / (2**bits - 1)),
        ),
    ),
    Exercise(
        id="06.5",
        task="Split a gain in time per token: dividends(fp32_s, sixteen_bit_s, method_s) gives "
        "(precision, method)",
        cases=(
            case(0.040, 0.020, 0.010, gives=(2.0, 2.0)),
            case(0.030, 0.024, 0.030, gives=(1.25, 0.8),
                 hint="A method may take back what the precision gave."),
            case(1.0, 1.0, 0.5, gives=(1.0, 2.0)),
            case(1.0, 0.5, 0.5, gives=(2.0, 1.0), hint="No faster than 16 bits: nothing to claim."),
        ),
        properties=(_product_is_the_whole,),
        mistakes=(
            Mistake("The method starts from 16 bits, not from fp32.",
                    lambda fp32, half, method: (fp32 / half, fp32 / method)),
            Mistake("Gains in time multiply, they do not add.",
                    lambda fp32, half, method: (fp32 / half, fp32 / method - fp32 / half)),
            Mistake("Less time is a gain above 1.",
                    lambda fp32, half, method: (half / fp32, method / half)),
        ),
    ),
    Exercise(
        id="06.6",
        task="Which layers stay in 16 bits: layers_to_skip(rows, budget_bytes), rows are (name, "
        "damage, bytes it would save)",
        cases=(
            case(LAYERS, 40, gives=["down", "q"]),
            case(LAYERS, 30, gives=["down"]),
            case(LAYERS, 29, gives=["q"], hint="What does not fit is passed over."),
            case(LAYERS, 1000, gives=["down", "q", "gate"], hint="A harmless layer is no use."),
            case([("big", 1.0, 100), ("small", 0.5, 10)], 100, gives=["small"],
                 hint="Damage per byte decides the order."),
            case([], 10, gives=[]),
        ),
        mistakes=(
            Mistake("Divide the damage by the bytes that it costs.", _by_damage),
            Mistake("A smaller layer may still fit after one that does not.", _stops_early),
            Mistake("Skipping a layer that does no damage buys nothing.", _skips_harmless),
            Mistake("The budget ends.", _no_budget),
        ),
    ),
)  # fmt: skip
