from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from turbo_lab.records.outcome import compare_rows, count_met, judge, within
from turbo_lab.records.schema import Measurement, Prediction

finite = st.floats(-1e9, 1e9)


def predicted(value, *, tolerance=None, band=None, name="x", reason=None):
    return Prediction(
        name=name, value=value, unit="s", tolerance=tolerance, band=band, why="", reason=reason,
        published_claim=None, published=None,
    )  # fmt: skip


def measured(value, *, name="x", reason=None):
    samples = () if value is None else (value,)
    return Measurement(
        name=name, unit="s", definition=None, statistic="median", value=value, reason=reason,
        samples=samples, earlier=(),
    )  # fmt: skip


@given(finite, finite)
def test_zero_tolerance_is_equality(value, other):
    assert within(predicted(value, tolerance=0.0), other) == (value == other)


@given(finite, st.floats(0, 2), finite)
def test_relative_tolerance(value, tolerance, other):
    edge = tolerance * abs(value)
    assume(not math.isclose(abs(other - value), edge, rel_tol=1e-6, abs_tol=1e-6))
    assert within(predicted(value, tolerance=tolerance), other) == (abs(other - value) <= edge)


def test_the_edge_counts_as_inside():
    assert within(predicted(1.0, tolerance=0.1), 1.1)
    assert within(predicted(1.0, band=(0.5, 1.5)), 1.5)
    assert not within(predicted(1.0, band=(0.5, 1.5)), 1.5001)


def test_open_bands():
    at_most, at_least = predicted(1, band=(None, 2)), predicted(1, band=(2, None))
    assert within(at_most, -100) and not within(at_most, 3)
    assert within(at_least, 100) and not within(at_least, 1)


@pytest.mark.parametrize(
    ("value", "reason", "verdict", "shown"),
    [
        (1.0, None, "met", None),
        (2.0, None, "not met", None),
        (None, "no engine", "unmeasured", "no engine"),
    ],
)
def test_verdicts(value, reason, verdict, shown):
    row = judge(predicted(1.0, tolerance=0.1), measured(value, reason=reason))
    assert (row.verdict, row.reason) == (verdict, shown)


def test_what_was_not_asked_for_and_what_was_not_predicted_is_unmeasured():
    assert judge(predicted(1, tolerance=0.0), None).reason == "not asked for yet"
    row = judge(predicted(None, tolerance=0.0, reason="needs x"), measured(1))
    assert (row.verdict, row.measured, row.ratio, row.reason) == ("unmeasured", 1, None, "needs x")


def test_no_ratio_to_a_predicted_zero():
    row = judge(predicted(0, tolerance=0.0), measured(0))
    assert (row.verdict, row.ratio) == ("met", None)


def test_the_table_follows_the_predictions():
    rows = compare_rows(
        [predicted(1, tolerance=0.0, name="b"), predicted(1, tolerance=0.0, name="a")],
        [measured(2, name="a"), measured(1, name="b"), measured(9, name="c")],
    )
    assert [(r.name, r.verdict) for r in rows] == [("b", "met"), ("a", "not met")]
    assert count_met(rows) == 1
