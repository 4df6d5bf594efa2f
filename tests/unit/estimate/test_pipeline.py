"""Pipelines: closed forms against a small simulation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.pipeline import (
    bubble_fraction,
    bubble_over_ideal,
    decode_round_s,
    kept_micro_batches,
    micro_batches_for,
    pipeline_s,
    stage_weight_bytes,
    uneven_pipeline_s,
)
from turbo_lab.models.catalog import load_model

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


@given(st.lists(st.floats(0.1, 5), min_size=1, max_size=5), st.integers(1, 8))
def test_a_decode_round_is_set_by_the_slowest_stage_or_by_the_way_of_one_token(
    stage_s: list[float], micro_batches: int
) -> None:
    round_s = decode_round_s(stage_s, micro_batches=micro_batches)
    assert round_s >= sum(stage_s) and round_s >= micro_batches * max(stage_s)
    assert decode_round_s(stage_s, micro_batches=1) == pytest.approx(sum(stage_s))
    assert micro_batches / round_s <= 1 / max(stage_s) * (1 + 1e-9)  # no faster than the slowest


def test_kept_micro_batches_of_both_schedules() -> None:
    def kept(name: str, stage: int) -> int:
        return kept_micro_batches(name, stages=4, stage=stage, micro_batches=8)

    assert [kept("GPipe", s) for s in range(4)] == [8, 8, 8, 8]
    assert [kept("1F1B", s) for s in range(4)] == [4, 3, 2, 1]
    with pytest.raises(UsageError, match="Allowed: 1F1B, GPipe"):
        kept("gpipe", 0)
    with pytest.raises(UsageError, match="stage is 4; allowed: 0 to 3"):
        kept("1F1B", 4)


def test_stage_weights_hold_a_tied_vocabulary_twice() -> None:
    spec = load_model("smollm2-135m").spec()
    whole = stage_weight_bytes(spec, [range(30)], element_bytes=4)
    halves = stage_weight_bytes(spec, [range(15), range(15, 30)], element_bytes=4)
    assert sum(halves) - sum(whole) == spec.vocab * spec.hidden * 4
    norms = (2 * 30 + 1) * spec.hidden
    assert whole[0] // 4 + norms == 134_515_008  # the published number of parameters
    untied = load_model("llama-3.1-8b").spec()
    parts = [range(8 * n, 8 * n + 8) for n in range(4)]
    assert sum(stage_weight_bytes(untied, parts)) == stage_weight_bytes(untied, [range(32)])[0]
