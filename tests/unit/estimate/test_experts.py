"""Expert loads in closed form against drawn ones, and the bytes of splitting real models."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.experts import (
    capacity,
    dispatch_bytes,
    dropped_share,
    expected_active_experts,
    expected_dropped_share,
    expected_imbalance,
    expected_max_load,
    expert_over_tensor,
    imbalance,
    place_by_load,
    rank_loads,
)
from turbo_lab.estimate.tensor_parallel import (
    allowed_ranks,
    bytes_per_layer,
    require_split,
    split_heads,
    step_exchanges,
)
from turbo_lab.models.catalog import load_model
from turbo_lab.models.memory import kv_bytes_per_token

LOADS = st.lists(st.integers(0, 1000), min_size=1, max_size=32).filter(any)


def drawn_loads(tokens: int, *, experts: int, per_token: int, draws: int) -> np.ndarray:
    """Loads of uniform routing without repetition within a token; shape (draws, experts)."""
    rng = np.random.default_rng(7)
    order = rng.random((draws, tokens, experts)).argpartition(per_token, axis=2)[..., :per_token]
    return np.stack([np.bincount(one.ravel(), minlength=experts) for one in order])


@pytest.mark.parametrize(
    ("tokens", "experts", "per_token"), [(64, 8, 2), (256, 16, 1), (96, 32, 4)]
)
def test_expected_load_of_the_fullest_expert(tokens: int, experts: int, per_token: int) -> None:
    loads = drawn_loads(tokens, experts=experts, per_token=per_token, draws=1500)
    found = expected_max_load(tokens, experts=experts, experts_per_token=per_token)
    assert found == pytest.approx(loads.max(axis=1).mean(), rel=0.03)
    active = expected_active_experts(tokens, experts=experts, experts_per_token=per_token)
    assert active == pytest.approx((loads > 0).sum(axis=1).mean(), rel=0.01)
    slots = capacity(tokens, experts=experts, experts_per_token=per_token, capacity_factor=1.25)
    dropped = expected_dropped_share(
        tokens, experts=experts, experts_per_token=per_token, capacity_factor=1.25
    )
    drawn = np.mean([dropped_share(row.tolist(), slots=slots) for row in loads])
    assert dropped == pytest.approx(drawn, rel=0.1, abs=5e-4)


@given(loads=LOADS, factor=st.integers(2, 5))
def test_imbalance_depends_on_shares_only(loads: list[int], factor: int) -> None:
    found = imbalance(loads)
    assert 1 <= found <= len(loads)
    assert imbalance([factor * load for load in loads]) == pytest.approx(found)
    assert imbalance(loads + loads) == pytest.approx(found)


@given(loads=LOADS, slots=st.integers(0, 1000))
def test_more_slots_never_drop_more(loads: list[int], slots: int) -> None:
    assert 0 <= dropped_share(loads, slots=slots + 1) <= dropped_share(loads, slots=slots) <= 1
    assert dropped_share(loads, slots=max(loads)) == 0


@given(loads=st.lists(st.integers(0, 100), min_size=8, max_size=8).filter(any))
def test_ranks_with_several_experts_are_more_even(loads: list[int]) -> None:
    ranks = rank_loads(loads, ranks=4)
    assert sum(ranks) == sum(loads)
    assert imbalance(ranks) <= imbalance(loads) + 1e-9


def test_larger_batches_are_more_even() -> None:
    shares = [expected_imbalance(t, experts=64, experts_per_token=6) for t in (16, 256, 4096)]
    assert shares == sorted(shares, reverse=True) and shares[-1] < 1.2


@given(tokens=st.integers(0, 1000), k=st.integers(1, 8), ranks=st.integers(1, 16))
def test_merging_copies_never_sends_more(tokens: int, k: int, ranks: int) -> None:
    given_ = {"hidden": 64, "experts_per_token": k, "ranks": ranks}
    merged = dispatch_bytes(tokens, **given_)
    copies = dispatch_bytes(tokens, **given_, merged=False)
    assert merged <= copies + 1e-9
    assert (merged == 0) == (ranks == 1 or tokens == 0)


def test_uneven_experts_and_empty_loads_are_refused() -> None:
    with pytest.raises(UsageError, match="8 experts cannot be split over 3 ranks"):
        rank_loads([1] * 8, ranks=3)
    with pytest.raises(UsageError, match="at least one must be above 0"):
        imbalance([0, 0])


def test_the_bundled_model_splits_over_three_ranks_only() -> None:
    spec = load_model("smollm2-135m").spec()
    assert allowed_ranks(spec) == [1, 3]
    exchanges = step_exchanges(spec, ranks=3, tokens=5, sampled=1, element_bytes=4)
    assert [(e.kind, e.count, e.size_bytes) for e in exchanges] == [
        ("all_reduce", 1, 5 * 576 * 4), ("all_reduce", 60, 5 * 576 * 4),
        ("all_gather", 1, 49152 * 4),
    ]  # fmt: skip
    assert exchanges[1].payload_bytes(ranks=3) == 60 * 5 * 576 * 4 * 2 * 2 / 3
    assert exchanges[1].total_bytes == 30 * bytes_per_layer(spec, tokens=5, element_bytes=4)
    with pytest.raises(UsageError, match=r"layer 0: 9 query heads .* 2 ranks; allowed: 1, 3, 9"):
        require_split(spec, ranks=2)
    with pytest.raises(UsageError, match="width 1536 cannot be split over 9"):
        require_split(spec, ranks=9)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen2.5-72b", "mixtral-8x7b"])
def test_fewer_kv_heads_than_ranks_are_copied(model: str) -> None:
    spec = load_model(model).spec()
    attention = spec.attention_layers[0]
    for ranks in allowed_ranks(spec):
        split = split_heads(attention, ranks=ranks)
        assert split.query_heads * ranks == attention.query_heads
        assert split.kv_heads * ranks == attention.kv_heads * split.copies
        one, whole = (kv_bytes_per_token(spec, tensor_parallel=n) for n in (ranks, 1))
        assert one * ranks == whole * split.copies


def test_one_rank_exchanges_nothing_and_latents_are_kept_whole() -> None:
    spec = load_model("deepseek-v2-lite").spec()
    assert step_exchanges(spec, ranks=1, tokens=8) == ()
    assert split_heads(spec.attention_layers[0], ranks=4).copies == 4
    with pytest.raises(UsageError, match="sampled from 0 up to tokens"):
        step_exchanges(spec, ranks=2, tokens=1, sampled=2)


@given(st.lists(st.integers(0, 100), min_size=8, max_size=8).filter(any), st.sampled_from([2, 4]))
def test_placing_by_load_is_never_worse_than_the_fullest_half(loads: list[int], ranks: int) -> None:
    placed = place_by_load(loads, ranks=ranks)
    assert sorted(e for rank in placed for e in rank) == list(range(8))
    assert {len(rank) for rank in placed} == {8 // ranks}
    totals = [sum(loads[e] for e in rank) for rank in placed]
    assert max(totals) <= sum(sorted(loads)[-8 // ranks :])
    if ranks == 2:  # the classic bound of the greedy rule
        assert max(totals) - min(totals) <= max(loads)


def test_placing_by_load_on_a_case_that_consecutive_experts_get_wrong() -> None:
    loads = [9, 8, 2, 1]
    assert imbalance(rank_loads(loads, ranks=2)) == 1.7
    placed = place_by_load(loads, ranks=2)
    assert [sum(loads[e] for e in rank) for rank in placed] == [10, 10]
    with pytest.raises(UsageError, match="a divisor of 4"):
        place_by_load(loads, ranks=3)


@given(st.integers(1, 8), st.integers(2, 64))
def test_experts_against_tensor_parallelism_is_the_ratio_of_both_formulas(
    k: int, ranks: int
) -> None:
    spec, tokens = load_model("mixtral-8x7b").spec(), 64 * ranks
    each = dispatch_bytes(
        tokens // ranks, hidden=spec.hidden, experts_per_token=k, ranks=ranks, merged=False
    )
    tensor = bytes_per_layer(spec, tokens=tokens) * 2 * (ranks - 1) / ranks
    assert 2 * each / tensor == pytest.approx(expert_over_tensor(k, ranks=ranks))
