from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.estimate.points import MeasuredStep, StepPoint
from turbo_lab.precision.weights.arms import rates
from turbo_lab.precision.weights.speed import (
    ALONE,
    PROMPT,
    ByteLaw,
    in_words,
    noise_of,
    seconds_of,
)

SIZES = st.integers(10**6, 10**10)


@given(st.floats(1e-3, 1.0), SIZES, st.floats(1e9, 1e12), SIZES)
def test_the_law_gives_back_what_it_was_made_from(step_s, read, bandwidth, other) -> None:
    law = ByteLaw(step_s, read, bandwidth)
    assert law.predicted_s(read) >= step_s * (1 - 1e-9)
    if law.other_s > 0:
        assert law.predicted_s(read) == pytest.approx(step_s)
    if other < read:
        assert law.speedup(other) <= read / other * (1 + 1e-9)  # never more than the bytes allow
    assert (law.predicted_s(other) < law.predicted_s(read)) == (other < read)


def test_by_hand() -> None:
    law = ByteLaw(0.020, 200_000_000, 20e9)
    assert law.other_s == pytest.approx(0.010)
    assert law.speedup(100_000_000) == pytest.approx(20 / 15)


@pytest.mark.parametrize("values", [(0, 1, 1), (1, -1, 1), (1, 1, 0)])
def test_nonsense_is_refused(values) -> None:
    with pytest.raises(UsageError, match="must be above 0"):
        ByteLaw(*values)


def test_points_are_found_by_name_and_noise_is_of_decode_alone() -> None:
    steps = {
        "bf16": [MeasuredStep(ALONE, (0.020, 0.022)), MeasuredStep(PROMPT, (0.3, 0.6))],
        "int8": [MeasuredStep(StepPoint("decode", 8, 128), (0.05,))],
    }
    assert seconds_of(steps, "bf16", PROMPT) == 0.3
    assert noise_of(steps) == pytest.approx(0.1)
    assert noise_of({}) == 0.0
    assert rates(steps, "bf16") == pytest.approx([50, 1 / 0.022]) and rates(steps, "int4") == []
    with pytest.raises(UnmeasuredError, match="was not measured on int8"):
        seconds_of(steps, "int8", ALONE)


@pytest.mark.parametrize(("speedup", "words"), [
    (0.8, "slower than bf16"), (0.97, "no faster"), (1.04, "no faster"),
    (1.1, "less than the bytes promise"), (1.28, "as the bytes promise"),
    (1.6, "faster than the bytes promise"),
])  # fmt: skip
def test_a_speed_up_is_told_beside_its_promise(speedup: float, words: str) -> None:
    assert words in in_words(speedup, promised=1.3, noise=0.05)
