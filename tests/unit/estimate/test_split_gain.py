from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.split_gain import (
    SplitStep,
    break_even_bandwidth,
    break_even_latency_s,
    exchange_s,
    ring_rounds,
    ring_seconds,
    split_gain,
)
from turbo_lab.estimate.tensor_parallel import step_exchanges
from turbo_lab.models.catalog import load_model

SPEC = load_model("qwen3-8b").spec()
TIMES, COUNTS = st.floats(1e-6, 10), st.integers(1, 16)


def exchanges(ranks: int, tokens: int = 1):
    return step_exchanges(SPEC, ranks=ranks, tokens=tokens, sampled=1, element_bytes=4)


@given(TIMES, TIMES, COUNTS, COUNTS)
def test_shared_cores_cost_between_an_even_cut_and_whole_turns(
    share_s: float, cost_s: float, ranks: int, cores: int
) -> None:
    step = SplitStep(share_s, cost_s, ranks, cores)
    assert share_s + cost_s <= step.least_s * (1 + 1e-9)
    assert step.least_s <= step.seconds * (1 + 1e-9)
    assert step.seconds <= step.least_s + share_s * (1 + 1e-9)
    if ranks <= cores:
        assert step.seconds == step.least_s == SplitStep(share_s, cost_s, ranks).seconds


def test_three_ranks_on_two_cores_take_two_turns() -> None:
    step = SplitStep(0.010, 0.004, 3, 2)
    assert step.rounds == 2
    assert step.seconds == pytest.approx(0.024) and step.least_s == pytest.approx(0.019)


@given(TIMES, st.sampled_from([2, 4, 8]), st.floats(1e6, 1e12), st.integers(1, 512))
def test_at_the_break_even_latency_splitting_neither_gains_nor_loses(
    whole_s: float, ranks: int, rate: float, tokens: int
) -> None:
    listed = exchanges(ranks, tokens)
    alpha = break_even_latency_s(whole_s, listed, ranks=ranks, bandwidth_bytes_s=rate)
    kind = {"ranks": ranks, "bandwidth_bytes_s": rate}
    if alpha is None:
        free = exchange_s(listed, seconds=ring_seconds(alpha_s=0.0, **kind))
        assert split_gain(whole_s, ranks=ranks, exchange_s=free) <= 1 + 1e-9
        return
    cost = exchange_s(listed, seconds=ring_seconds(alpha_s=alpha, **kind))
    assert split_gain(whole_s, ranks=ranks, exchange_s=cost) == pytest.approx(1.0, rel=1e-6)


@given(TIMES, st.sampled_from([2, 4, 8]), st.floats(0, 1e-3), st.integers(1, 512))
def test_at_the_break_even_bandwidth_too(
    whole_s: float, ranks: int, alpha_s: float, tokens: int
) -> None:
    listed = exchanges(ranks, tokens)
    rate = break_even_bandwidth(whole_s, listed, ranks=ranks, alpha_s=alpha_s)
    rounds = sum(one.count * ring_rounds(one.kind, ranks=ranks) for one in listed)
    if rate is None:
        assert rounds * alpha_s >= whole_s * (1 - 1 / ranks) * (1 - 1e-9)
        return
    seconds = ring_seconds(ranks=ranks, alpha_s=alpha_s, bandwidth_bytes_s=rate)
    cost = exchange_s(listed, seconds=seconds)
    assert split_gain(whole_s, ranks=ranks, exchange_s=cost) == pytest.approx(1.0, rel=1e-6)


def test_gain_with_a_free_exchange_is_amdahls() -> None:
    assert split_gain(1.0, ranks=8, exchange_s=0.0) == 8
    assert split_gain(1.0, ranks=8, exchange_s=0.0, repeated_s=0.2) == pytest.approx(1 / 0.3)
    assert split_gain(1.0, ranks=1, exchange_s=0.0) == 1


def test_one_rank_needs_no_link() -> None:
    assert break_even_latency_s(1.0, (), ranks=1, bandwidth_bytes_s=1e9) is None
    assert break_even_bandwidth(1.0, (), ranks=1, alpha_s=0.0) is None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: SplitStep(-1.0, 0.0, 2),
        lambda: SplitStep(1.0, 0.0, 0),
        lambda: SplitStep(1.0, 0.0, 2, 0),
        lambda: split_gain(1.0, ranks=2, exchange_s=0.0, repeated_s=1.1),
        lambda: split_gain(0.0, ranks=2, exchange_s=0.0),
        lambda: ring_rounds("broadcast", ranks=2),
        lambda: break_even_latency_s(1.0, (), ranks=0, bandwidth_bytes_s=1.0),
    ],
)
def test_wrong_values_are_named(wrong) -> None:
    with pytest.raises(UsageError, match="allowed|at least|needs all_reduce"):
        wrong()
