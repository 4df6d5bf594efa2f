from __future__ import annotations

import numpy as np
import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.schemes import Scheme
from turbo_lab.precision.weights.spread import grid_lines, histogram, outlier_ratio, spread

INT4 = Scheme("int4", "tensor")
RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(size=(64, 128)).astype(np.float32)


@pytest.mark.parametrize("scheme", [
    Scheme("int8", "channel"), Scheme("int4", "channel"), Scheme("int4", "group", group_size=32),
])  # fmt: skip
def test_the_closed_form_holds_where_many_steps_are_in_use(scheme: Scheme) -> None:
    found = spread("m", WEIGHT, name="s", scheme=scheme)
    assert found.beyond_bound == 0
    assert found.relative == pytest.approx(found.predicted, rel=0.05)


def test_one_outlier_stretches_the_grid_of_all_weights() -> None:
    loud = WEIGHT.copy()
    loud[0, 0] = 60.0
    calm, stretched = (spread("m", w, name="s", scheme=INT4) for w in (WEIGHT, loud))
    assert calm.to_zero < 0.3 < 0.9 < stretched.to_zero
    assert stretched.step > 10 * calm.step and stretched.relative > 3 * calm.relative
    assert outlier_ratio(loud) > 30
    spared = spread("m", loud, name="s", scheme=Scheme("int4", "group", group_size=32))
    assert spared.to_zero == pytest.approx(
        spread("m", WEIGHT, name="s", scheme=Scheme("int4", "group", group_size=32)).to_zero,
        abs=0.02,
    )


def test_floats_have_a_bound_but_no_single_step() -> None:
    found = spread("m", WEIGHT, name="s", scheme=Scheme("fp8_e4m3", "channel"))
    assert found.beyond_bound == 0 and found.step is None and found.predicted is None


def test_histogram_and_grid_are_in_root_mean_squares() -> None:
    found = histogram(WEIGHT * 7)
    assert sum(found["shares"]) == pytest.approx(1)
    assert len(found["edges"]) == len(found["shares"]) + 1
    points = grid_lines(WEIGHT * 7, {"t": INT4})["t"]
    assert len(points) == 16 and 0.0 in points
    assert max(points) - points[-2] == pytest.approx(outlier_ratio(WEIGHT) / 7.5)


def test_what_has_no_grid_or_no_spread_is_refused() -> None:
    with pytest.raises(UsageError, match="symmetric integer scheme"):
        grid_lines(WEIGHT, {"f": Scheme("fp8_e4m3", "tensor")})
    with pytest.raises(UsageError, match="only zeros"):
        spread("m", np.zeros((4, 4), np.float32), name="s", scheme=INT4)
