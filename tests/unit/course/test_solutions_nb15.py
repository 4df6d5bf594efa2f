"""The solutions of notebook 15 pass, known wrong answers fail, and both agree with the package."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.course.exercises import find_solution, list_exercises
from turbo_lab.course.grading import grade
from turbo_lab.course.solutions import nb15
from turbo_lab.papers.audit import audit
from turbo_lab.papers.schema import Claim, PaperRecord
from turbo_lab.papers.store import list_records, record
from turbo_lab.papers.survey import QUESTIONS
from turbo_lab.papers.trap_sizes import survivors

ALL = list_exercises("15")
MISTAKES = [(one, mistake) for one in ALL for mistake in one.mistakes]
ASKED = {
    "precision_dividend", "batch_changed", "percentile_of_survivors", "weak_baseline",
    "compared_only_with_itself",
}  # fmt: skip


def solution_of(exercise):
    solution = find_solution(exercise.id)
    return solution if exercise.wants_function else solution()


@pytest.mark.parametrize("exercise", ALL, ids=lambda one: one.id)
def test_the_solution_is_correct_and_the_stub_is_not_attempted(exercise):
    assert grade(exercise, solution_of(exercise)).status == "correct"
    blank = (
        (lambda *args: ...) if exercise.wants_function else dict.fromkeys(exercise.expected, ...)
    )
    assert grade(exercise, blank).status == "not attempted"


@pytest.mark.parametrize(("exercise", "mistake"), MISTAKES,
                         ids=lambda one: getattr(one, "id", "") or "mistake")  # fmt: skip
def test_known_wrong_answers_fail_with_their_hint(exercise, mistake):
    result = grade(exercise, mistake.answer)
    assert result.status == "wrong" and mistake.hint in result.message


def test_the_kernel_is_placed_as_its_record_is():
    one, answer = record("flashattention3"), nb15.flash_attention_3()
    axes = one.axes.model_dump()
    for name in ("stage", "deployment", "hardware_coupling"):
        assert axes[name] == answer[name]
    assert axes["resource"] == (answer["resource"],) and one.layers == (answer["layer"],)


def plain(claim: Claim) -> dict:
    return {"changed": claim.changed, "against": claim.against, "counted": claim.counted}


@pytest.mark.parametrize("one", list_records(), ids=lambda one: one.id)
def test_traps_are_those_of_the_audit(one: PaperRecord):
    if any(claim.against == "bound" for claim in one.claims):
        pytest.skip("the exercise knows no bounds")
    told = sorted(set(audit(one).traps) & ASKED)
    assert nb15.traps_of([plain(claim) for claim in one.claims]) == told


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=40), st.floats(0.1, 100),
       st.sampled_from([50, 75, 90, 99]))  # fmt: skip
def test_the_honest_percentile_is_never_below_that_of_the_survivors(values, timeout, p):
    honest = nb15.honest_percentile(values, timeout, p)
    assert honest in values or honest == math.inf
    whole = nb15.honest_percentile(values, 1e9, p)
    assert whole in values and sum(value <= whole for value in values) >= p / 100 * len(values)
    read = survivors(values, timeout_s=timeout, p=p)
    if read.survivors_s is None:
        assert honest == math.inf
    elif read.lost > (1 - p / 100) * len(values):
        assert honest == math.inf and read.survivors_s <= timeout


@given(st.floats(0.1, 50), st.integers(1, 64), st.integers(1, 64))
def test_littles_law_holds_before_and_after(gain, before, after):
    rate, latency = 3.0, before / 3.0
    later = latency * nb15.latency_factor(gain, before, after)
    assert gain * rate * later == pytest.approx(after)


def test_answers_are_questions_of_the_template_in_its_order():
    everything = nb15.transfer(["switch"], [], True, True)
    assert [q for q in QUESTIONS if q in everything] == everything
