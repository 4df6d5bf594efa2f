from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from turbo_lab.core.errors import UsageError
from turbo_lab.metrics.percentiles import certified, percentile, samples_to_certify


@pytest.mark.parametrize(("p", "n"), [(50, 11), (90, 64), (95, 130), (99, 662)])
def test_w20_samples_needed(p, n):
    assert samples_to_certify(p) == n
    assert certified(n, p) and not certified(n - 1, p)


@given(st.floats(1, 99.9), st.floats(0.5, 0.999))
def test_it_is_the_smallest_such_sample(p, confidence):
    n = samples_to_certify(p, confidence=confidence)
    tail = 1 - p / 100
    assert binom.cdf(1, n, tail) <= (1 - confidence) * (1 + 1e-9)
    assert n == 2 or binom.cdf(1, n - 1, tail) > (1 - confidence) * (1 - 1e-9)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 100))
def test_linear_interpolation_is_numpys_default(values, p):
    assert percentile(values, p) == pytest.approx(float(np.percentile(values, p)), abs=1e-6)


def test_no_samples_no_percentile():
    assert percentile([], 50) is None


@pytest.mark.parametrize("p", [-1, 101, float("nan")])
def test_percentile_outside_is_refused(p):
    with pytest.raises(UsageError):
        percentile([1.0], p)
    with pytest.raises(UsageError):
        samples_to_certify(p)
