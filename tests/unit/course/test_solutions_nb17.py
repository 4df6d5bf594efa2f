"""The solutions of notebook 17 pass, known wrong answers fail, and both agree with the package."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.course.exercises import find_solution, list_exercises
from turbo_lab.course.grading import grade
from turbo_lab.course.solutions import nb17
from turbo_lab.estimate import amdahl
from turbo_lab.experiment import settings

ALL = list_exercises("17")
MISTAKES = [(one, mistake) for one in ALL for mistake in one.mistakes]


@pytest.mark.parametrize("exercise", ALL, ids=lambda one: one.id)
def test_the_solution_is_correct_and_the_stub_is_not_attempted(exercise):
    assert grade(exercise, find_solution(exercise.id)).status == "correct"
    assert grade(exercise, lambda *args: ...).status == "not attempted"


@pytest.mark.parametrize(("exercise", "mistake"), MISTAKES,
                         ids=lambda one: getattr(one, "id", "") or "mistake")  # fmt: skip
def test_known_wrong_answers_fail_with_their_hint(exercise, mistake):
    result = grade(exercise, mistake.answer)
    assert result.status == "wrong" and mistake.hint in result.message


@given(share=st.floats(0, 0.99), faster=st.floats(0.1, 100))
def test_amdahl_is_the_packages(share, faster):
    assert nb17.chain_speedup(share, faster) == pytest.approx(amdahl.speedup(share, faster=faster))


@pytest.mark.parametrize(("a", "b"), [(2, 3), (3, 3), (4, 4)])
def test_the_smallest_p_value_is_counted_over_all_deals(a, b):
    values = list(range(a + b))
    gaps = [
        abs(sum(side) / a - (sum(values) - sum(side)) / b)
        for side in itertools.combinations(values, a)
    ]
    extreme = sum(gap >= max(gaps) - 1e-9 for gap in gaps) / len(gaps)
    assert extreme <= nb17.smallest_p_value(a, b) + 1e-12
    if a == b:
        assert extreme == pytest.approx(nb17.smallest_p_value(a, b))


@given(
    a=st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)),
    b=st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)),
)
def test_what_changed_is_what_the_package_names(a, b):
    assert nb17.changed_settings(a, b) == list(settings.differences(a, b))
