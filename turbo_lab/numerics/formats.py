"""The number formats by name: floating point, integers, and the NF4 code book.

A format turns float32 values into unsigned codes and back. ``encode`` rounds to the nearest
representable value, ties to the even code (NF4: ties to the lower code). What happens beyond the
largest value is stated per format.
"""

from __future__ import annotations

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.numerics.floats import FloatFormat
from turbo_lab.numerics.integers import CodebookFormat, IntFormat

NumberFormat = FloatFormat | IntFormat | CodebookFormat

# Quantiles of the normal distribution, scaled to [-1, 1], zero exact. Source: QLoRA, appendix E
# (arXiv 2305.14314); the test computes them again from the quantile function.
_NF4 = (
    -1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
)  # fmt: skip


def _all_formats() -> dict[str, NumberFormat]:
    listed = (
        FloatFormat("fp32", 8, 23, 127),
        FloatFormat("bf16", 8, 7, 127),
        FloatFormat("fp16", 5, 10, 15),
        FloatFormat("fp8_e5m2", 5, 2, 15),
        FloatFormat("fp8_e4m3", 4, 3, 7, "fn"),
        FloatFormat("fp8_e4m3fnuz", 4, 3, 8, "fnuz"),
        IntFormat("int8", 8),
        IntFormat("int4", 4),
        IntFormat("int2", 2),
        CodebookFormat("nf4", 4, _NF4),
    )
    return {f.name: f for f in listed}


_FORMATS = _all_formats()


def number_format(name: str) -> NumberFormat:
    """The format of that name (``fp8_e4m3`` is e4m3fn). Raises UsageError with the known names."""
    if name not in _FORMATS:
        raise UsageError(f"number format is {name!r}.{did_you_mean(name, list(_FORMATS))}")
    return _FORMATS[name]


def format_names() -> tuple[str, ...]:
    """All known formats, widest first."""
    return tuple(_FORMATS)
