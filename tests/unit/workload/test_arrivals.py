"""W11: arrival processes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.workload.arrivals import constant, gamma, gap_cv, poisson, rate_per_s, trace


def test_w11_coefficient_of_variation():
    n = 20_000
    assert gap_cv(constant(n, rate_per_s=5)) == pytest.approx(0, abs=1e-9)
    assert gap_cv(poisson(n, rate_per_s=5, seed=1)) == pytest.approx(1, rel=0.05)
    for shape in (0.25, 4.0):
        cv = gap_cv(gamma(n, rate_per_s=5, shape=shape, seed=1))
        assert cv == pytest.approx(1 / math.sqrt(shape), rel=0.05)


def test_w11_seeds():
    a = poisson(50, rate_per_s=5, seed=1)
    assert a == poisson(50, rate_per_s=5, seed=1)
    b = poisson(50, rate_per_s=5, seed=2)
    assert a[-1] != b[-1], "totals are not forced to be equal"


def test_w11_asked_against_achieved_rate():
    assert rate_per_s(constant(11, rate_per_s=4)) == pytest.approx(4)
    achieved = rate_per_s(poisson(50, rate_per_s=4, seed=3))
    assert achieved != pytest.approx(4, rel=1e-6)
    assert achieved == pytest.approx(4, rel=0.5)
    assert rate_per_s(poisson(20_000, rate_per_s=4, seed=3)) == pytest.approx(4, rel=0.03)
    assert rate_per_s([1.0]) is None and rate_per_s([]) is None


@given(st.integers(1, 50), st.floats(0.01, 1e4), st.floats(0.05, 50), st.integers(0, 2**32))
def test_schedules_start_at_zero_and_never_go_back(count, rate, shape, seed):
    times = gamma(count, rate_per_s=rate, shape=shape, seed=seed)
    assert len(times) == count and times[0] == 0.0
    assert list(times) == sorted(times) and all(math.isfinite(t) for t in times)


def test_trace_is_moved_and_scaled():
    assert trace([10.0, 11.0, 15.0], speed=2) == (0.0, 0.5, 2.5)
    assert trace([10.0, 11.0, 15.0], count=2) == (0.0, 1.0)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: constant(0, rate_per_s=1),
        lambda: poisson(5, rate_per_s=0, seed=0),
        lambda: poisson(5, rate_per_s=float("inf"), seed=0),
        lambda: gamma(5, rate_per_s=1, shape=-1, seed=0),
        lambda: trace([]),
        lambda: trace([2.0, 1.0]),
        lambda: trace([1.0], speed=0),
    ],
)
def test_wrong_use(wrong):
    with pytest.raises(UsageError):
        wrong()
