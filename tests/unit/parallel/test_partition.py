from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.tensor_parallel import allowed_ranks
from turbo_lab.models.spec import from_hf_config
from turbo_lab.parallel.grid import grid_groups, host_of_ranks
from turbo_lab.parallel.partition import expert_part, head_in_layers, split_layers, tensor_part
from turbo_lab.parallel.weights import small_config, weights_from

SMOL = {
    "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576, "head_dim": 64,
    "intermediate_size": 1536, "vocab_size": 49152, "num_hidden_layers": 30,
}  # fmt: skip


def spec(**changes: object):
    return from_hf_config(small_config(**changes), name="small")


@given(
    st.integers(1, 8), st.integers(1, 4), st.integers(1, 8), st.integers(1, 8), st.integers(8, 99)
)
def test_parts_cover_the_model_once_and_kv_heads_serve_their_group(
    kv_heads: int, group: int, ranks: int, width: int, vocab: int
) -> None:
    heads = kv_heads * group
    model = spec(
        num_attention_heads=heads, num_key_value_heads=kv_heads, hidden_size=8 * heads, head_dim=8,
        intermediate_size=width * ranks, vocab_size=vocab,
    )  # fmt: skip
    if ranks not in allowed_ranks(model):
        with pytest.raises(UsageError, match="cannot be split|The whole model splits over"):
            tensor_part(model, rank=0, ranks=ranks)
        return
    parts = [tensor_part(model, rank=rank, ranks=ranks) for rank in range(ranks)]
    assert list(itertools.chain(*(p.query_heads for p in parts))) == list(range(heads))
    assert list(itertools.chain(*(p.width for p in parts))) == list(range(width * ranks))
    assert list(itertools.chain(*(p.vocab for p in parts))) == list(range(vocab))
    for part in parts:
        assert {head // group for head in part.query_heads} == set(part.kv_heads)
        assert len(part.query_heads) % len(part.kv_heads) == 0
        assert len(part.vocab) <= part.padded_vocab


def test_the_bundled_model_splits_over_three_ranks_and_not_over_two() -> None:
    model = spec(**SMOL)
    part = tensor_part(model, rank=1, ranks=3)
    assert part.query_heads == range(3, 6) and part.kv_heads == range(1, 2)
    assert part.width == range(512, 1024) and part.vocab == range(16384, 32768)
    with pytest.raises(UsageError, match=r"9 query heads .* 2 ranks.*splits over: 1, 3 ranks"):
        tensor_part(model, rank=0, ranks=2)
    with pytest.raises(UsageError, match=r"1536 cannot be split over 9 ranks"):
        tensor_part(model, rank=0, ranks=9)  # the heads would divide
    with pytest.raises(UsageError, match="rank is 3 of 3; allowed: 0 to 2"):
        tensor_part(model, rank=3, ranks=3)


@given(st.integers(1, 40), st.integers(1, 8), st.floats(0, 9), st.floats(0, 9))
def test_stages_are_contiguous_not_empty_and_as_balanced_as_can_be(
    layers: int, stages: int, first: float, last: float
) -> None:
    if stages > layers:
        with pytest.raises(UsageError, match=f"allowed: 1 to {layers}"):
            split_layers(layers, stages=stages, first_extra=first, last_extra=last)
        return
    parts = split_layers(layers, stages=stages, first_extra=first, last_extra=last)
    assert list(itertools.chain(*parts)) == list(range(layers))
    assert len(parts) == stages and all(parts)
    if layers <= 9:

        def slowest(cuts: tuple[int, ...]) -> float:
            edges = [0, *cuts, layers]
            work = [float(b - a) for a, b in itertools.pairwise(edges)]
            work[0] += first
            work[-1] += last
            return max(work)

        found = slowest(tuple(part.start for part in parts[1:]))
        best = min(map(slowest, itertools.combinations(range(1, layers), stages - 1)))
        assert found == pytest.approx(best) or not (first or last)


def test_even_split_gives_the_remainder_to_the_stages_before_the_last() -> None:
    assert [len(p) for p in split_layers(30, stages=4)] == [7, 8, 8, 7]


def test_the_head_of_a_small_model_weighs_eight_layers() -> None:
    model = spec(**SMOL)
    extra = head_in_layers(model)
    assert extra == pytest.approx(49152 * 576 / 3_538_944)  # weights of head and of one layer
    assert [len(p) for p in split_layers(30, stages=2, last_extra=extra)] == [19, 11]


def test_experts_divide_or_are_refused() -> None:
    assert expert_part(8, rank=1, ranks=4) == range(2, 4)
    with pytest.raises(UsageError, match="8 experts / 3 ranks = 2.66667; .* 1, 2, 4, 8"):
        expert_part(8, rank=0, ranks=3)


def test_models_that_the_forward_pass_does_not_compute_are_refused() -> None:
    for change, reason in (
        ({"attention_bias": True}, "bias True"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rotary yarn"),
        ({"model_type": "mistral", "sliding_window": 64}, "of type mistral"),
    ):
        with pytest.raises(UsageError, match=reason):
            weights_from(small_config(**change), {})
    with pytest.raises(UsageError, match="layers is 3; allowed: 1 to 2"):
        weights_from(small_config(), {}).first_layers(3)


def test_grid_and_its_placements() -> None:
    rows, columns = grid_groups(tensor=3, stages=2)
    assert rows == [[0, 1, 2], [3, 4, 5]] and columns == [[0, 3], [1, 4], [2, 5]]
    together = host_of_ranks("stages together", tensor=2, stages=2, hosts=2)
    apart = host_of_ranks("stages apart", tensor=2, stages=2, hosts=2)
    assert together == [0, 0, 1, 1] and apart == [0, 1, 0, 1]
    for wrong in ({"placement": "well"}, {"hosts": 3}):
        with pytest.raises(UsageError, match="stages together, stages apart"):
            host_of_ranks(
                **{"placement": "stages apart", "tensor": 2, "stages": 2, "hosts": 2, **wrong}
            )
    with pytest.raises(UsageError, match="tensor 0"):
        grid_groups(tensor=0, stages=1)
