"""The roofline, and the guard that no measured point lies above it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.hardware.roofline import AboveRoofError, Roof, RooflinePoint, require_below_roof

ROOF = Roof(100e9, 10e9, "test machine")
AMOUNTS = st.floats(1e3, 1e15)


@given(AMOUNTS, AMOUNTS)
def test_bounds_are_ordered_and_at_most_a_factor_of_two_apart(flops: float, moved: float) -> None:
    lower = ROOF.lower_bound_s(flops=flops, bytes_moved=moved)
    upper = ROOF.upper_bound_s(flops=flops, bytes_moved=moved)
    assert lower <= upper <= 2 * lower * (1 + 1e-12)


@given(AMOUNTS, AMOUNTS)
def test_the_lower_bound_is_the_roof(flops: float, moved: float) -> None:
    seconds = ROOF.lower_bound_s(flops=flops, bytes_moved=moved)
    point = RooflinePoint("at the roof", flops, moved, seconds)
    assert point.achieved_flops == pytest.approx(ROOF.attainable_flops(point.intensity))
    assert point.height(ROOF) == pytest.approx(1)


def test_the_ridge_separates_the_two_regimes() -> None:
    assert ROOF.ridge == 10
    assert ROOF.bound_by(flops=9e9, bytes_moved=1e9) == "memory"
    assert ROOF.bound_by(flops=11e9, bytes_moved=1e9) == "compute"


HONEST = RooflinePoint("decode", 0.27e9, 0.27e9, 0.05)


def test_honest_points_pass() -> None:
    require_below_roof([HONEST, RooflinePoint("prefill", 200e9, 0.3e9, 2.5)], roof=ROOF)


@pytest.mark.parametrize(
    ("planted", "hint"),
    [
        (RooflinePoint("planted ms", 0.27e9, 0.27e9, 0.05e-3), "ms taken for s"),
        (RooflinePoint("planted us", 0.27e9, 0.27e9, 0.05e-6), "µs or ns taken for s"),
        (RooflinePoint("planted bits", 0.27e9, 8 * 0.27e9, 0.05), "bits taken for bytes"),
    ],
)
def test_a_planted_wrong_unit_is_caught(planted: RooflinePoint, hint: str) -> None:
    with pytest.raises(AboveRoofError, match=hint) as caught:
        require_below_roof([HONEST, planted], roof=ROOF)
    assert "planted" in str(caught.value) and "  decode" not in str(caught.value)


def test_a_time_that_is_not_a_number_is_caught() -> None:
    with pytest.raises(AboveRoofError):
        require_below_roof([RooflinePoint("nan", 1e9, 1e9, float("nan"))], roof=ROOF)


def test_tolerance_is_relative() -> None:
    slightly = RooflinePoint("slightly", 0.0001, 10e9, 0.98)
    require_below_roof([slightly], roof=ROOF, tolerance=0.03)
    with pytest.raises(AboveRoofError):
        require_below_roof([slightly], roof=ROOF, tolerance=0.01)


@pytest.mark.parametrize("wrong", [(0, 1), (1, 0), (-1, 1), (float("nan"), 1)])
def test_ceilings_must_be_positive(wrong: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="positive"):
        Roof(*wrong)
