"""Pruning: what is dropped, what is counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.precision.weights.dividend import split_gain
from turbo_lab.precision.weights.prune import prune_magnitude, prune_two_of_four


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.floats(0, 1), st.integers(0, 5))
def test_the_smallest_go_and_the_rest_is_untouched(
    rows: int, columns: int, sparsity: float, seed: int
) -> None:
    weight = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    pruned = prune_magnitude(weight, sparsity=sparsity)
    kept = pruned.values != 0
    assert kept.sum() == pruned.kept == weight.size - round(sparsity * weight.size)
    assert np.array_equal(pruned.values[kept], weight[kept])
    if kept.any() and not kept.all():
        assert np.abs(weight[kept]).min() >= np.abs(weight[~kept]).max()
    assert pruned.bytes == 2 * pruned.kept + (weight.size + 7) // 8


def test_half_the_weights_are_not_half_the_bytes() -> None:
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    assert prune_magnitude(weight, sparsity=0.5).bytes / (2 * weight.size) == 0.5625
    assert prune_two_of_four(weight).bytes / (2 * weight.size) == 0.5625


def test_two_of_four_keeps_the_larger_two_of_each_four() -> None:
    pruned = prune_two_of_four(np.float32([[1, -4, 3, 2, 0.1, 0.2, 0.4, 0.3]]))
    assert pruned.values.tolist() == [[0, -4, 3, 0, 0, 0, np.float32(0.4), np.float32(0.3)]]
    assert pruned.sparsity == 0.5
    with pytest.raises(UsageError, match="6 inputs; the 2:4 pattern needs a multiple of four"):
        prune_two_of_four(np.ones((2, 6)))
    with pytest.raises(UsageError, match=r"sparsity is 1\.5"):
        prune_magnitude(np.ones((2, 4)), sparsity=1.5)


def test_gain_is_split_at_the_sixteen_bit_baseline() -> None:
    size = split_gain("bytes", fp32=400, sixteen_bit=200, method=50, larger_is_better=False)
    assert (size.total, size.precision, size.method) == (8, 2, 4)
    rate = split_gain("tok/s", fp32=10, sixteen_bit=20, method=15, larger_is_better=True)
    assert (rate.total, rate.precision, rate.method) == (1.5, 2, 0.75)
    with pytest.raises(UsageError, match="sixteen_bit is 0"):
        split_gain("bytes", fp32=1, sixteen_bit=0, method=1, larger_is_better=False)
