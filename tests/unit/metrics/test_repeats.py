"""Repeated runs: the noise covers further runs as often as it says; no number from nothing."""

from __future__ import annotations

import numpy as np
import pytest

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.metrics.repeats import error_of_median, ratio_of_means, repeat_noise


def test_hand_computed() -> None:
    """n = 3, s = 1, mean 10, t(2, 0.975) = 4.3027: 4.3027 * sqrt(1/3 + 1/2) / 10."""
    floor = repeat_noise([9.0, 10.0, 11.0], others=2)
    assert floor.relative == pytest.approx(4.302653 * (5 / 6) ** 0.5 / 10, rel=1e-6)
    assert floor.spread == pytest.approx(0.2)
    assert floor.tolerance == floor.relative
    assert "3 runs" in str(floor) and "20.0%" in str(floor)


def test_two_runs_tell_little() -> None:
    two, five = repeat_noise([9.0, 11.0]), repeat_noise([9.0, 9.0, 10.0, 11.0, 11.0])
    assert two.relative > 4 * five.relative


def test_covers_further_runs_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(1000):
        runs = rng.normal(100, 3, 5)
        inside += repeat_noise(runs[:3].tolist(), others=2).holds(runs[3:].tolist())
    assert 0.93 < inside / 1000 < 0.97


@pytest.mark.parametrize("runs", [[], [3.0], [None, 3.0]])
def test_no_noise_from_fewer_than_two_runs(runs: list[float | None]) -> None:
    floor = repeat_noise(runs)
    assert floor.relative is None and floor.spread is None and floor.tolerance == 0.0
    assert floor.holds([3.0]) is None
    assert "no A/A noise" in str(floor)


def test_unknown_further_runs_hold_nothing() -> None:
    floor = repeat_noise([1.0, 1.1, 0.9])
    assert floor.holds([]) is None and floor.holds([1.0, None]) is None
    assert floor.holds([1.0]) is True and floor.holds([9.0]) is False


@pytest.mark.parametrize("bad", [[1.0, float("nan")], [1.0, 0.0], [1.0, -2.0]])
def test_impossible_runs_are_refused(bad: list[float]) -> None:
    with pytest.raises(UsageError, match="above 0"):
        repeat_noise(bad)


def test_ratio_leaves_no_failed_run_out() -> None:
    assert ratio_of_means([2.0, 4.0], to=[6.0]) == 0.5
    with pytest.raises(UnmeasuredError, match="the second side has no runs"):
        ratio_of_means([1.0], to=[])
    with pytest.raises(UnmeasuredError, match="the first side has a run without a number"):
        ratio_of_means([1.0, None], to=[1.0])


def test_error_of_the_median_is_what_medians_of_many_samples_scatter_by() -> None:
    rng = np.random.default_rng(1)
    runs = rng.normal(10, 0.5, (2000, 15))
    seen = np.median(runs, axis=1).std() / 10
    told = np.mean([error_of_median(row.tolist()) for row in runs])
    assert told == pytest.approx(seen, rel=0.1)
    assert error_of_median([3.0]) == 0.0 and error_of_median([-1.0, 0.0, 1.0]) == 0.0
