from __future__ import annotations

import subprocess

import numpy as np
import pytest

from turbo_lab.core.errors import EngineError, UnmeasuredError, UsageError
from turbo_lab.metrics.summary import Metric, Quantity


def fail(reason):
    raise UnmeasuredError(reason)


@pytest.mark.parametrize(
    ("result", "value", "n"),
    [
        (3, 3, 1),
        (0, 0, 1),
        (2.5, 2.5, 1),
        (True, 1, 1),
        (np.float32(0.5), 0.5, 1),
        (np.array([1, 2, 9]), 2, 3),
        ((4.0, 1.0), 2.5, 2),
        ({"value": 7}, 7, 1),
        ({"samples": [1, 2, 3], "why": "x"}, 2, 3),
        (Metric("ttft", "s", "first content", (1.0, 3.0), undefined=1), 2.0, 2),
        (Quantity("goodput", "req/s", "attained per second", 0.7), 0.7, 1),
    ],
)
def test_numbers_samples_mappings_and_metrics_are_taken(live, result, value, n):
    live.predict("x", 1, unit="s", tolerance=0.1)
    live.measure("x", lambda: result, unit="s")
    row = live.compare()["x"]
    assert (row.measured, row.n) == (value, n)


def test_a_metric_brings_its_definition_and_a_mapping_its_data(live):
    live.predict("x", 1, unit="s", tolerance=0.1)
    live.measure("x", lambda: Metric("ttft", "s", "first content", (1.0,)), unit="s")
    live.predict("y", 1, unit="s", tolerance=0.1)
    live.measure("y", lambda: {"value": 1, "log": ("a", "b")}, unit="s")
    record = live.record()
    assert record.measurements[0].definition == "first content"
    assert record.observations[0].data == {"log": ["a", "b"]}


@pytest.mark.parametrize("result", [None, "fast", [1, "x"], {"tokens": 3}, object()])
def test_anything_else_is_a_wrong_call(live, result):
    live.predict("x", 1, unit="s", tolerance=0.1)
    with pytest.raises(UsageError, match=r"measure\('x'\)"):
        live.measure("x", lambda: result, unit="s")


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (float("nan"), "1 of 1 samples undefined or not finite"),
        ([0.1, None, 0.2], "1 of 3 samples undefined"),
        ([0.1, float("inf")], "1 of 2 samples"),
        ([], "no sample"),
        ({"value": None}, "1 of 1 samples undefined"),
        (Quantity("goodput", "req/s", "attained", None, why_not="no data"), "no data"),
    ],
)
def test_no_number_is_made_from_absent_samples(live, result, reason):
    live.predict("x", 1, unit="s", tolerance=0.1)
    live.measure("x", lambda: result, unit="s")
    row = live.compare()["x"]
    assert row.measured is None and row.verdict == "unmeasured" and reason in row.reason


@pytest.mark.parametrize(
    "error",
    [
        UnmeasuredError("needs AVX-512"),
        EngineError("needs AVX-512"),
        ConnectionRefusedError("needs AVX-512"),
        TimeoutError("needs AVX-512"),
        subprocess.SubprocessError("needs AVX-512"),
    ],
)
def test_failures_are_shown_and_never_replaced(live, capsys, error):
    def broken():
        raise error

    live.predict("x", 1, unit="s", tolerance=0.1)
    shown = live.measure("x", broken, unit="s")
    assert capsys.readouterr().out.endswith("x is unmeasured: needs AVX-512\n")
    assert not shown and shown.value is None
    with pytest.raises(UnmeasuredError, match="needs AVX-512"):
        float(shown)
    assert live.record().measurements[0].value is None


@pytest.mark.parametrize("error", [UsageError("typo"), NameError("typo"), KeyError("typo")])
def test_wrong_calls_and_bugs_are_not_results(live, error):
    def broken():
        raise error

    live.predict("x", 1, unit="s", tolerance=0.1)
    with pytest.raises(type(error)):
        live.measure("x", broken, unit="s")


def test_an_async_function_is_refused_with_the_way_out(live, recwarn):
    async def later():
        return 1

    live.predict("x", 1, unit="s", tolerance=0.1)
    with pytest.raises(UsageError, match="Await it in the cell first"):
        live.measure("x", later, unit="s")
    assert not [w for w in recwarn if "never awaited" in str(w.message)]


def test_measuring_again_keeps_the_former_values_in_sight(live):
    live.predict("x", 1, unit="s", tolerance=0.1)
    for value in (5, 3, 1):
        live.measure("x", lambda value=value: value, unit="s")
    assert live.record().measurements[0].earlier == (5, 3)
