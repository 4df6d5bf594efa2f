"""Jain's index: bounds, known values, what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.metrics.fairness import jain_index

SHARES = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=20)


def test_known_values() -> None:
    assert jain_index([3, 3, 3]) == 1
    assert jain_index([1, 0, 0, 0]) == 0.25
    assert jain_index([1, 2]) == pytest.approx(0.9)


@given(SHARES, st.floats(0.1, 100))
def test_bounds_scale_and_order(shares: list[float], factor: float) -> None:
    found = jain_index(shares)
    assert 1 / len(shares) - 1e-9 <= found <= 1 + 1e-9
    assert jain_index([factor * x for x in shares]) == pytest.approx(found)
    assert jain_index(sorted(shares)) == pytest.approx(found)


@pytest.mark.parametrize("wrong", [[], [0, 0], [1, -1]])
def test_nothing_to_share_is_refused(wrong: list[float]) -> None:
    with pytest.raises(UsageError, match="shares"):
        jain_index(wrong)
