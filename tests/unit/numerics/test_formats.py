"""Every format against independent libraries: ml_dtypes, torch, numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.floats import FloatFormat
from turbo_lab.numerics.formats import format_names, number_format

FLOATS = [n for n in format_names() if isinstance(number_format(n), FloatFormat)]
EIGHT = [n for n in FLOATS if number_format(n).bits == 8]
ML_NAMES = {"fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2",
            "fp8_e4m3fnuz": "float8_e4m3fnuz", "bf16": "bfloat16"}  # fmt: skip
TORCH_NAMES = {**ML_NAMES, "fp16": "float16", "fp32": "float32"}


def dense_float32() -> np.ndarray:
    """A million bit patterns over all of float32, both signs, denormals, infinities and NaNs,
    and the neighbours of every 16-bit code, where rounding decides."""
    spread = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32)
    halves = (np.arange(2**16, dtype=np.uint32) << 16)[:, None] + np.array(
        [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=np.uint32
    )
    return np.concatenate([spread, halves.reshape(-1)]).view(np.float32)


DENSE = dense_float32()
FINITE = DENSE[~np.isnan(DENSE)]


def reference(name: str) -> np.dtype:
    if name in ("fp16", "fp32"):
        return np.dtype({"fp16": np.float16, "fp32": np.float32}[name])
    library = pytest.importorskip("ml_dtypes", reason="needs the cpu environment")
    return np.dtype(getattr(library, ML_NAMES[name]))


@pytest.mark.parametrize("name", FLOATS)
def test_encode_equals_ml_dtypes_bit_for_bit(name: str) -> None:
    kind, dtype = number_format(name), reference(name)
    with np.errstate(over="ignore"):
        expected = FINITE.astype(dtype).view(f"u{dtype.itemsize}")
    assert np.array_equal(kind.encode(FINITE), expected)
    assert np.isnan(kind.decode(kind.encode(np.float32([np.nan, -np.nan])))).all()


@pytest.mark.parametrize("name", FLOATS)
def test_decode_equals_ml_dtypes_over_all_codes(name: str) -> None:
    kind, dtype = number_format(name), reference(name)
    codes = np.arange(2**16) if kind.bits > 8 else np.arange(256)
    codes = (codes << 16 if kind.bits == 32 else codes).astype(f"u{dtype.itemsize}")
    mine, expected = kind.decode(codes), codes.view(dtype).astype(np.float32)
    assert np.array_equal(np.isnan(mine), np.isnan(expected))
    number = ~np.isnan(mine)
    assert np.array_equal(mine[number].view(np.uint32), expected[number].view(np.uint32))


@pytest.mark.parametrize("name", FLOATS)
def test_encode_equals_torch_bit_for_bit(name: str) -> None:
    torch = pytest.importorskip("torch", reason="needs the cpu environment")
    kind = number_format(name)
    signed = {8: torch.uint8, 16: torch.int16, 32: torch.int32}[kind.bits]
    converted = torch.from_numpy(FINITE).to(getattr(torch, TORCH_NAMES[name]))
    expected = converted.view(signed).numpy().view(f"u{kind.bits // 8}")
    # torch 2.13 saturates e4m3fn and no other; pytorch pull request 178817
    assert np.array_equal(kind.encode(FINITE, saturate=name == "fp8_e4m3"), expected)


@pytest.mark.parametrize("name", EIGHT)
def test_all_codes_survive_a_round_trip(name: str) -> None:
    kind, codes = number_format(name), np.arange(256, dtype=np.uint8)
    values = kind.decode(codes)
    number = ~np.isnan(values)
    assert np.array_equal(kind.encode(values[number]), codes[number])


def test_ranges_are_the_published_ones() -> None:
    """Sources: OCP 8-bit floating point specification, table 1; IEEE 754 binary16."""
    rows = {"fp8_e4m3": (448, 2**-6, 2**-9), "fp8_e5m2": (57344, 2**-14, 2**-16),
            "fp16": (65504, 2**-14, 2**-24), "fp8_e4m3fnuz": (240, 2**-7, 2**-10)}  # fmt: skip
    for name, (largest, normal, smallest) in rows.items():
        kind = number_format(name)
        assert (kind.max, kind.smallest_normal, kind.smallest) == (largest, normal, smallest)
        assert kind.lowest == -largest
    assert number_format("bf16").max > 3.38e38 and number_format("bf16").epsilon == 2**-7
    assert number_format("int8").lowest == -128 and number_format("int4").max == 7


def test_overflow_rule_of_each_format() -> None:
    beyond = np.float32([1e6, -1e6, np.inf])
    for name in EIGHT:
        kind = number_format(name)
        plain = kind.decode(kind.encode(beyond))
        assert np.isinf(plain).all() if kind.overflow == "inf" else np.isnan(plain).all()
        kept = kind.decode(kind.encode(beyond, saturate=True))
        assert kept.tolist() == [kind.max, -kind.max, kind.max]


@settings(deadline=None)
@given(st.sampled_from([n for n in FLOATS if n != "fp32"]),
       hnp.arrays(np.float32, 20, elements=st.floats(width=32, allow_nan=False)))  # fmt: skip
def test_rounding_is_to_nearest(name: str, values: np.ndarray) -> None:
    """No representable neighbour is nearer than the value that was chosen."""
    kind = number_format(name)
    inside = np.clip(values, kind.lowest, kind.max).astype(np.float64)
    codes = kind.encode(inside)
    error = np.abs(kind.decode(codes) - inside)
    assert (error <= kind.half_step(codes)).all()
    assert (error <= 0.5 * kind.ulp(inside)).all()


def test_integers_round_half_to_even_and_saturate() -> None:
    kind = number_format("int4")
    assert kind.decode(kind.encode([0.5, 1.5, -0.5, -2.5, 99, -99])).tolist() == [
        0, 2, 0, -2, 7, -8]  # fmt: skip
    assert kind.encode([0.0])[0] == kind.offset == 8
    with pytest.raises(UsageError, match=r"exceed int4, which holds -8 to 7"):
        kind.encode([8.0], saturate=False)
    with pytest.raises(UsageError, match="2 of 3 entries are NaN, the first at"):
        kind.encode([1.0, np.nan, np.nan])


def test_nf4_table_is_that_of_the_normal_quantiles() -> None:
    """QLoRA, appendix E: quantiles of 9 positive and 8 negative steps, zero once, scaled to 1."""
    from scipy.stats import norm

    offset = 0.9677083
    upper = norm.ppf(np.linspace(offset, 0.5, 9)[:-1])
    lower = -norm.ppf(np.linspace(offset, 0.5, 8)[:-1])
    expected = np.sort(np.concatenate([upper, [0.0], lower])) / upper.max()
    assert np.abs(number_format("nf4").table - expected).max() < 2e-6


@settings(deadline=None)
@given(hnp.arrays(np.float32, 30, elements=st.floats(-1, 1, width=32)))
def test_nf4_takes_the_nearest_entry(values: np.ndarray) -> None:
    kind = number_format("nf4")
    nearest = np.abs(values[:, None].astype(np.float64) - kind.table).min(axis=1)
    assert np.array_equal(np.abs(kind.decode(kind.encode(values)) - values.astype(float)), nearest)


def test_unknown_format_is_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'fp8_e4m2'.*Did you mean 'fp8_e"):
        number_format("fp8_e4m2")
