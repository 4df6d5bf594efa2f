"""Every scheme: error bound, bytes, refusals, and equality with an independent library."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.error import error_bound, error_summary, round_trip, uniform_mse
from turbo_lab.numerics.quantized import dequantize, quantize, with_scales
from turbo_lab.numerics.schemes import Scheme, bits_per_value, grouped_shape, stored_bytes

INTEGERS = ("int8", "int4", "int2")
SCALED = [
    Scheme(f, g, axis=axis, group_size=3 if g == "group" else None, zero=z, scale_dtype=d)
    for f, g, axis, z, d in itertools.product(
        (*INTEGERS, "nf4", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz"),
        ("tensor", "channel", "token", "group"), (-1, -2), ("none", "code", "value"),
        ("fp32", "fp16", "bf16"),
    )
    if z == "none" or f in INTEGERS
]  # fmt: skip
PLAIN = [Scheme(f, "none") for f in ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz")]

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
narrow = st.floats(-8, 8, width=32)
tiny = st.floats(-(2.0**-120), 2.0**-120, width=32, allow_subnormal=True)
arrays = st.one_of(*(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=3, max_side=7), elements=e)
    for e in (floats, narrow, tiny, st.just(0.0))
))  # fmt: skip


def quantize_or_skip(values: np.ndarray, scheme: Scheme) -> Any:
    """A scale may be too large for its dtype, which is a clear error and no case for a bound."""
    try:
        return quantize(values, scheme)
    except UsageError as error:
        assert "exceeds" in str(error) or "overflows" in str(error)
        assume(False)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(SCALED), arrays)
@example(Scheme("int8", scale_dtype="bf16"), np.float32([[-1.0, 1.0]]))
@example(Scheme("int4", zero="value", scale_dtype="fp16"), np.float32([[1000.2, 1000.3]]))
@example(Scheme("int4", zero="code"), np.float32([[5.0, 7.0]]))
@example(Scheme("int8"), np.float32([[1e-45, 0.0]]))
@example(Scheme("int4", scale_dtype="bf16"), np.float32([[3.4e38, -3.4e38]]))
def test_error_is_within_the_bound(scheme: Scheme, values: np.ndarray) -> None:
    stored = quantize_or_skip(values, scheme)
    error = np.abs(values.astype(np.float64) - dequantize(stored))
    assert (error <= error_bound(stored)).all()
    assert stored.bytes == stored_bytes(values.shape, scheme=scheme).total


@settings(deadline=None)
@given(st.sampled_from(PLAIN), arrays)
def test_plain_conversion_is_within_half_a_step(scheme: Scheme, values: np.ndarray) -> None:
    stored, kind = quantize(values, scheme), scheme.number
    inside = np.abs(values) <= kind.max
    error = np.abs(values.astype(np.float64) - dequantize(stored))
    assert (error <= error_bound(stored))[inside].all()
    assert (np.abs(dequantize(stored)[~inside]) == kind.max).all()  # saturated
    assert stored.bytes == values.size * kind.bits // 8


def test_bound_is_reached() -> None:
    """The bound is no loose one: half a step occurs."""
    stored = quantize([[127.5, 0.5, 1.49, -3.5]], Scheme("int8"))
    error = np.abs(np.float32([[127.5, 0.5, 1.49, -3.5]]) - dequantize(stored))
    assert error.max() == 0.5 and error_bound(stored).max() == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("scheme", [*SCALED[::7], *PLAIN], ids=lambda s: s.label)
def test_nan_is_refused(scheme: Scheme) -> None:
    with pytest.raises(UsageError, match=r"1 of 4 entries are NaN, the first at \(1, 0\)"):
        quantize([[1.0, 2.0], [np.nan, 0.0]], scheme)


def test_infinity_needs_a_format_that_has_one() -> None:
    values = np.float32([[np.inf, -1.0]])
    with pytest.raises(UsageError, match="1 of 2 entries are infinite.*fp8_e5m2"):
        quantize(values, Scheme("int8"))
    assert np.isinf(dequantize(quantize(values, Scheme("fp8_e5m2", "none", saturate=False)))[0, 0])
    assert np.isnan(dequantize(quantize(values, Scheme("fp8_e4m3", "none", saturate=False)))[0, 0])
    assert dequantize(quantize(values, Scheme("fp8_e4m3", "none")))[0, 0] == 448


@pytest.mark.parametrize(("scheme", "expected"), [
    (Scheme("int8", "tensor"), (6 * 10, 4, 0)),
    (Scheme("int8", "channel", scale_dtype="bf16"), (6 * 10, 6 * 2, 0)),
    (Scheme("int8", "channel", axis=-2, scale_dtype="fp16"), (6 * 10, 10 * 2, 0)),
    (Scheme("int4", "group", group_size=4, scale_dtype="fp16"), (30, 6 * 3 * 2, 0)),
    (Scheme("int4", "group", group_size=5, zero="code", scale_dtype="fp16"), (30, 24, 6)),
    (Scheme("int4", "group", group_size=5, zero="value", scale_dtype="fp16"), (30, 24, 24)),
    (Scheme("int2", "token", zero="code"), (15, 24, 2)),
    (Scheme("fp8_e5m2", "none"), (60, 0, 0)),
])  # fmt: skip
def test_bytes_by_hand(scheme: Scheme, expected: tuple[int, int, int]) -> None:
    predicted = stored_bytes((6, 10), scheme=scheme)
    assert (predicted.payload, predicted.scales, predicted.zeros) == expected
    stored = quantize(np.arange(60.0).reshape(6, 10), scheme)
    assert stored.bytes == sum(expected)
    assert stored.scales.shape == grouped_shape((6, 10), scheme=scheme)


def test_int4_groups_cost_more_than_four_bits() -> None:
    scheme = Scheme("int4", "group", group_size=64, scale_dtype="fp16")
    assert bits_per_value((576, 576), scheme=scheme) == 4.25


def test_channels_of_keys_and_tokens_of_values() -> None:
    """One channel with large values spoils the tokens' scales, not the channels' own."""
    keys = np.random.default_rng(0).standard_normal((2, 16, 8)).astype(np.float32)
    keys[..., 3] *= 100
    per_channel = quantize(keys, Scheme("int8", "channel", axis=-2))
    per_token = quantize(keys, Scheme("int8", "token", axis=-1))
    assert per_channel.scales.shape == (2, 8, 1) and per_token.scales.shape == (2, 16, 1)
    small = np.delete(np.arange(8), 3)
    errors = [error_summary(keys[..., small], dequantize(q)[..., small]).relative
              for q in (per_channel, per_token)]  # fmt: skip
    assert errors[0] * 20 < errors[1]


def test_asymmetric_uses_all_codes_of_one_sided_values() -> None:
    values = np.random.default_rng(0).uniform(5, 7, (8, 32)).astype(np.float32)
    mse = {z: round_trip(values, quantize(values, Scheme("int4", "token", zero=z))).mse
           for z in ("none", "code", "value")}  # fmt: skip
    # symmetric wastes the negative half, "code" must reach down to zero, "value" need not
    assert mse["none"] > 3 * mse["code"] > 9 * mse["value"]


def test_uniform_error_is_predicted() -> None:
    values = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    stored = quantize(values, Scheme("int8", "channel"))
    assert round_trip(values, stored).mse == pytest.approx(uniform_mse(stored), rel=0.05)
    with pytest.raises(UsageError, match="nf4 has no uniform step"):
        uniform_mse(quantize(values, Scheme("nf4")))


def test_given_scales_are_used_and_checked() -> None:
    values = np.float32([[1.0, 2.0], [3.0, 9.0]])
    scheme = Scheme("int4", "channel")
    own = quantize(values, scheme)
    again = with_scales(values, scheme, scales=own.scale_values)
    assert np.array_equal(own.payload, again.payload)
    clipped = with_scales(values, scheme, scales=np.float32([[0.5], [1.0]]))
    assert dequantize(clipped).tolist() == [[1.0, 2.0], [3.0, 7.0]]
    with pytest.raises(UsageError, match=r"scales have shape \(2,\); this scheme needs \(2, 1\)"):
        with_scales(values, scheme, scales=np.ones(2))


def test_combinations_without_meaning_are_refused() -> None:
    for wrong, text in (
        ({"format": "int8", "granularity": "none"}, "without a scale"),
        ({"format": "bf16", "granularity": "channel"}, "takes no scale"),
        ({"format": "int8", "granularity": "row"}, "granularity is 'row'"),
        ({"format": "int8", "granularity": "group"}, "needs a size"),
        ({"format": "int8", "group_size": 4}, "only that one takes it"),
        ({"format": "nf4", "zero": "code"}, "a zero point needs int8"),
    ):
        with pytest.raises(UsageError, match=text):
            Scheme(**wrong)
    with pytest.raises(UsageError, match="exceeds fp16"):
        quantize([[1e9, 1.0]], Scheme("int8", scale_dtype="fp16"))
    with pytest.raises(UsageError, match=r"axis is -3, and the array has shape \(2, 2\)"):
        quantize(np.ones((2, 2)), Scheme("int8", "channel", axis=-3))


def test_torch_tensors_and_half_precision_are_read_alike() -> None:
    torch = pytest.importorskip("torch", reason="needs the cpu environment")
    values = torch.randn(4, 8, dtype=torch.bfloat16, requires_grad=True)
    scheme = Scheme("int8", "token")
    ours = quantize(values, scheme)
    assert np.array_equal(ours.payload, quantize(values.detach().float().numpy(), scheme).payload)


@pytest.mark.parametrize(("bits", "size", "zero"), [
    (8, None, "none"), (8, None, "code"), (4, None, "none"), (4, 32, "none"), (4, 32, "code"),
])  # fmt: skip
def test_equals_compressed_tensors(bits: int, size: int | None, zero: str) -> None:
    torch = pytest.importorskip("torch", reason="needs the cpu environment")
    library = pytest.importorskip("compressed_tensors.quantization")
    from compressed_tensors.quantization.lifecycle.forward import dequantize as their_dequantize
    from compressed_tensors.quantization.lifecycle.forward import quantize as their_quantize
    from compressed_tensors.quantization.utils import calculate_qparams

    x = torch.randn(48, 96, generator=torch.Generator().manual_seed(0))
    args = library.QuantizationArgs(
        num_bits=bits, symmetric=zero == "none", group_size=size,
        strategy="group" if size else "channel",
    )  # fmt: skip
    sets = x.reshape(48, -1, size or 96)
    scale, point = calculate_qparams(sets.amin(-1), sets.amax(-1), args)
    codes = their_quantize(x, scale, point, args, dtype=torch.int8)
    scheme = Scheme(f"int{bits}", "group" if size else "channel", group_size=size, zero=zero)
    ours = quantize(x, scheme)
    assert np.array_equal(ours.scale_values, scale.numpy())
    assert np.array_equal(ours.codes.astype(int) - 2 ** (bits - 1), codes.numpy())
    if ours.zero_values is not None:
        assert np.array_equal(ours.zero_values, point.numpy())
    assert np.array_equal(dequantize(ours), their_dequantize(codes, scale, point, args).numpy())
    assert math.prod(ours.scales.shape) == scale.numel()
