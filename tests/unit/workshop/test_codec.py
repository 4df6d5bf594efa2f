"""Answers travel as plain JSON text: what goes in comes out, and nothing else can."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.course.grading import same
from turbo_lab.workshop.codec import EncodingError, decode, encode

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
keys = st.integers() | st.text() | st.tuples(st.integers(), st.text())
values = st.recursive(
    leaves | st.just(...),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(keys, inner)
        | st.sets(st.integers() | st.text())
    ),
    max_leaves=20,
)


@settings(max_examples=40)
@given(values)
def test_what_goes_in_comes_out(value: object) -> None:
    again = decode(encode(value))
    assert again == value and type(again) is type(value)


@pytest.mark.parametrize("value", [math.inf, -math.inf, 10**30, -0.0])
def test_numbers_at_the_edge(value: float) -> None:
    assert decode(encode(value)) == value


def test_not_a_number_stays_one() -> None:
    assert math.isnan(decode(encode(math.nan)))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_arrays_of_numbers(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    again = decode(encode(array))
    assert again.dtype == array.dtype and (again == array).all()
    assert same(decode(encode(np.float64(2.5))), 2.5)


@pytest.mark.parametrize("value", [object(), len, np.array(["a"]), np.array([None]), 1j, b"x"])
def test_what_is_no_plain_data_is_refused(value: object) -> None:
    with pytest.raises(EncodingError, match="no plain data"):
        encode(value)


def test_endless_nesting_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(EncodingError, match="nested"):
        encode(loop)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[" * 100_000, '{"a": 1, "b": 2}', '{"exec": "x"}', '{"dict": 3}', '{"set": [[1]]}',
     '{"array": [1], "dtype": "O"}', '{"array": "x", "dtype": "f8"}', '{"array": [1], "dtype": 5}'],
)  # fmt: skip
def test_hostile_text_is_an_error_and_nothing_else(text: str) -> None:
    with pytest.raises(EncodingError):
        decode(text)


def test_depth_is_bounded_for_the_reader_too() -> None:
    value: object = 1
    for _ in range(200):
        value = [value]
    with pytest.raises(EncodingError):
        decode(json.dumps(value))
