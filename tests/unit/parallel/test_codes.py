"""Codes of compressed messages: their bytes, what they give back, the error foretold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.network.compression import message_bytes
from turbo_lab.parallel.codes import (
    GATHERED,
    add_decoded,
    encode,
    expected_error,
    kept_count,
    rank_values,
)

COUNTS = st.integers(1, 3000)


def decoded(values: np.ndarray, **how: object) -> np.ndarray:
    total = np.zeros_like(values)
    add_decoded(encode(values, **how), total)
    return total


@given(COUNTS, st.sampled_from(GATHERED), st.floats(0.001, 1.0))
def test_a_message_has_the_bytes_of_the_formula(count: int, form: str, share: float) -> None:
    code = encode(rank_values(count, rank=0), form=form, kept_share=share)
    assert code.wire.dtype == np.uint8
    assert code.wire.size == message_bytes(count, form=form, kept_share=share)


@given(COUNTS, st.integers(0, 5))
def test_int8_is_off_by_half_a_step_at_most(count: int, rank: int) -> None:
    values = rank_values(count, rank=rank)
    step = 2 * np.abs(values).max() / 255
    assert np.abs(decoded(values, form="int8") - values).max() <= 0.51 * step


@given(COUNTS, st.floats(0.001, 1.0))
def test_topk_keeps_the_largest_exactly_and_drops_the_rest(count: int, share: float) -> None:
    values = rank_values(count, rank=1)
    kept = decoded(values, form="topk", kept_share=share)
    keep = kept_count(count, share)
    places = np.flatnonzero(kept)
    assert len(places) == keep
    np.testing.assert_array_equal(kept[places], values[places])
    rest = np.delete(np.abs(values), places)
    assert rest.size == 0 or rest.max() <= np.abs(values[places]).min()


@pytest.mark.parametrize("form", ["int8", "topk"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_error_of_a_sum_is_foretold(form: str, ranks: int) -> None:
    arrays = [rank_values(1 << 14, rank=rank) for rank in range(ranks)]
    exact, total = np.sum(arrays, axis=0, dtype=np.float64), np.zeros(1 << 14, np.float32)
    for array in arrays:
        add_decoded(encode(array, form=form), total)
    error = np.linalg.norm(total - exact) / np.linalg.norm(exact)
    assert error == pytest.approx(expected_error(arrays, form=form), rel=0.1)


def test_halves_are_within_their_bound() -> None:
    arrays = [rank_values(1 << 14, rank=rank) for rank in range(2)]
    exact = np.sum(arrays, axis=0, dtype=np.float64)
    half = arrays[0].astype(np.float16) + arrays[1].astype(np.float16)
    error = np.linalg.norm(half.astype(np.float64) - exact) / np.linalg.norm(exact)
    assert 0.2 < error / expected_error(arrays, form="fp16") < 1
    assert expected_error(arrays, form="fp32") == 0


def test_wrong_forms_and_shares_are_named() -> None:
    values = rank_values(4, rank=0)
    with pytest.raises(UsageError, match="no format 'int4'"):
        encode(values, form="int4")
    with pytest.raises(UsageError, match="fp16 is summed on the way; coded forms: int8, topk"):
        encode(values, form="fp16")
    with pytest.raises(UsageError, match="above 0 up to 1"):
        encode(values, form="topk", kept_share=0.0)


def test_every_rank_adds_its_own_values_with_the_same_channels_sticking_out() -> None:
    one, other = (rank_values(4096, rank=rank) for rank in (0, 1))
    assert not np.array_equal(one, other)
    np.testing.assert_array_equal(one, rank_values(4096, rank=0))
    for values in (one, other):
        assert (
            np.abs(values[::128]).mean()
            > 10 * np.abs(np.delete(values, slice(0, None, 128))).mean()
        )
