"""Solutions of notebook 06."""

from __future__ import annotations

from types import MappingProxyType


def packed_bytes(outputs: int, inputs: int, bits: int, group: int, scale_bytes: int) -> int:
    """Codes are packed over the whole matrix; each row has its own groups, the last may be short.

    ``ceil(outputs * inputs * bits / 8) + outputs * ceil(inputs / group) * scale_bytes``.
    """
    codes = -(-outputs * inputs * bits // 8)
    groups = outputs * -(-inputs // group)
    return codes + groups * scale_bytes


def to_int4(values: list[float], scale: float) -> list[int]:
    """Nearest whole number of steps (Python's round takes ties to even), held within -8 to 7."""
    return [max(-8, min(7, round(value / scale))) for value in values]


def overflows_fp16(values: list[float]) -> list[bool]:
    """The largest fp16 is 65,504 and the next one would be 65,536.

    From the middle, 65,520, on the nearest value does not exist: the result is infinite.
    """
    return [abs(value) >= 65520 for value in values]


def largest_error(low: float, high: float, bits: int) -> float:
    """A grid over [low, high] with 2^bits points has 2^bits - 1 steps; rounding errs half a one."""
    return (high - low) / (2**bits - 1) / 2


def dividends(fp32_s: float, sixteen_bit_s: float, method_s: float) -> tuple[float, float]:
    """(precision, method): what every 16-bit server has anyway, and what is left to claim."""
    return fp32_s / sixteen_bit_s, sixteen_bit_s / method_s


def layers_to_skip(rows: list[tuple[str, float, int]], budget_bytes: int) -> list[str]:
    """Rows are (name, damage, bytes it would save). Most damage per byte first, while it fits.

    A layer without damage is never worth a byte; one that does not fit is passed over.
    """
    chosen = []
    for name, damage, size in sorted(rows, key=lambda row: row[1] / row[2], reverse=True):
        if damage > 0 and size <= budget_bytes:
            chosen.append(name)
            budget_bytes -= size
    return chosen


SOLUTIONS = MappingProxyType({
    "06.1": packed_bytes,
    "06.2": to_int4,
    "06.3": overflows_fp16,
    "06.4": largest_error,
    "06.5": dividends,
    "06.6": layers_to_skip,
})  # fmt: skip
