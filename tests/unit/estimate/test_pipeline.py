"""Pipelines: closed forms against a small simulation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.pipeline import (
    bubble_fraction,
    bubble_over_ideal,
    micro_batches_for,
    pipeline_s,
    uneven_pipeline_s,
)

STAGES, BATCHES = st.integers(1, 16), st.integers(1, 64)


def simulate(stage_s: list[float], *, micro_batches: int, send_s: float = 0.0) -> float:
    """Every stage takes each micro-batch when it is there and the stage is free; so do links."""
    ready = [0.0] * micro_batches
    for index, work_s in enumerate(stage_s):
        free = wire = 0.0
        for batch in range(micro_batches):
            free = max(free, ready[batch]) + work_s
            wire = max(wire, free) + (send_s if index < len(stage_s) - 1 else 0.0)
            ready[batch] = wire
    return ready[-1]


@given(stages=STAGES, batches=BATCHES, work=st.floats(0.001, 1), send=st.floats(0, 2))
def test_even_pipeline(stages: int, batches: int, work: float, send: float) -> None:
    found = pipeline_s(stages, micro_batches=batches, stage_s=work, send_s=send)
    expected = simulate([work] * stages, micro_batches=batches, send_s=send)
    assert found == pytest.approx(expected)


@given(work=st.lists(st.floats(0.001, 1), min_size=1, max_size=8), batches=BATCHES)
def test_uneven_pipeline(work: list[float], batches: int) -> None:
    found = uneven_pipeline_s(work, micro_batches=batches)
    assert found == pytest.approx(simulate(work, micro_batches=batches))


@given(stages=STAGES, batches=BATCHES)
def test_bubble_is_the_idle_share_of_the_simulation(stages: int, batches: int) -> None:
    total = simulate([1.0] * stages, micro_batches=batches)
    assert bubble_fraction(stages, micro_batches=batches) == pytest.approx(1 - batches / total)
    assert bubble_over_ideal(stages, micro_batches=batches) == pytest.approx(total / batches - 1)


@given(stages=st.integers(2, 32), bubble=st.floats(0.01, 0.9))
def test_fewest_micro_batches(stages: int, bubble: float) -> None:
    found = micro_batches_for(bubble, stages=stages)
    assert bubble_fraction(stages, micro_batches=found) <= bubble
    if found > 1:
        assert bubble_fraction(stages, micro_batches=found - 1) > bubble


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(UsageError, match="micro_batches is 0"):
        bubble_over_ideal(4, micro_batches=0)
    with pytest.raises(UsageError, match="between 0 and 1"):
        micro_batches_for(1.0, stages=4)
