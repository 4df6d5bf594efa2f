"""The solutions of notebook 06 and the package give the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.course.solutions import nb06
from turbo_lab.numerics.formats import number_format
from turbo_lab.numerics.quantized import dequantize, quantize
from turbo_lab.numerics.schemes import Scheme, stored_bytes
from turbo_lab.precision.weights.dividend import split_gain
from turbo_lab.precision.weights.sensitivity import Sensitivity, skip_list

VALUES = st.lists(st.floats(-(2.0**20), 2.0**20, width=32), min_size=1, max_size=30)
ROWS = st.lists(
    st.tuples(st.floats(-1, 1), st.integers(1, 100)), max_size=8, unique_by=lambda r: r[0] / r[1]
)


@given(st.integers(1, 40), st.integers(1, 200), st.sampled_from([4, 8]), st.integers(1, 64))
def test_packed_bytes(outputs, inputs, bits, group):
    scheme = Scheme(f"int{bits}", "group", group_size=group, scale_dtype="bf16")
    told = stored_bytes((outputs, inputs), scheme=scheme).total
    assert nb06.packed_bytes(outputs, inputs, bits, group, 2) == told


@given(VALUES, st.sampled_from([0.25, 0.5, 1.0, 8.0]))
def test_to_int4(values, scale):
    kind = number_format("int4")
    told = kind.decode(kind.encode(np.float32(values) / np.float32(scale)))
    assert nb06.to_int4(values, scale) == told.tolist()


@given(VALUES)
def test_overflows_fp16(values):
    kind = number_format("fp16")
    assert nb06.overflows_fp16(values) == np.isinf(kind.decode(kind.encode(values))).tolist()


@given(VALUES, st.sampled_from([("int8", 8), ("int4", 4), ("int2", 2)]))
def test_largest_error_is_a_bound(values, kind):
    name, bits = kind
    x = np.float32(values)
    stored = quantize(x, Scheme(name, "tensor", zero="value"))
    bound = nb06.largest_error(float(x.min()), float(x.max()), bits)
    slack = 1e-5 * float(np.abs(x).max()) + 1e-30
    assert np.abs(dequantize(stored) - x).max() <= bound * 1.001 + slack


@given(*[st.floats(1e-3, 1e3)] * 3)
def test_dividends(fp32, half, method):
    told = split_gain("t", fp32=fp32, sixteen_bit=half, method=method, larger_is_better=False)
    assert nb06.dividends(fp32, half, method) == pytest.approx((told.precision, told.method))


@given(ROWS, st.integers(0, 300))
def test_layers_to_skip(rows, budget):
    named = [(f"l{i}", damage, size) for i, (damage, size) in enumerate(rows)]
    parts = [Sensitivity(name, (name,), damage, size) for name, damage, size in named]
    assert tuple(nb06.layers_to_skip(named, budget)) == skip_list(parts, budget_bytes=budget)
