"""The exact merge: any number of parts, any order, any tree, extreme weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.turbo.merge import (
    merge,
    merge_tree,
    partial_attention,
    shard_bounds,
    sharded_parts,
)

HEADS, KV_HEADS, DIM = 6, 2, 8


def drawn(seed: int, tokens: int, spread: float = 1.0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    query = spread * rng.normal(size=(HEADS, DIM))
    keys = rng.normal(size=(tokens, KV_HEADS, DIM))
    return query, keys, rng.normal(size=(tokens, KV_HEADS, DIM))


def plain(query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Attention in natural logarithms, head by head, written apart from the package."""
    out, weight = [], []
    for head in range(HEADS):
        group = head // (HEADS // KV_HEADS)
        scores = keys[:, group] @ query[head] / np.sqrt(DIM)
        lse = np.logaddexp.reduce(scores)
        out.append(np.exp(scores - lse) @ values[:, group])
        weight.append(lse / np.log(2))
    return np.array(out), np.array(weight)


@given(
    st.integers(1, 33), st.integers(1, 60), st.integers(0, 9999),
    st.sampled_from([0.01, 1.0, 30.0, 2000.0]), st.randoms(),
)  # fmt: skip
def test_any_shards_order_and_tree_equal_the_unsharded(
    shards, tokens, seed, spread, random
) -> None:
    query, keys, values = drawn(seed, tokens, spread)
    whole, weight = plain(query, keys, values)
    outputs, weights = sharded_parts(query, keys, values, shards=shards)
    order = random.sample(range(shards), shards)
    fan_in = random.randint(2, 8)
    for got in (
        merge(outputs, weights),
        merge(outputs[order], weights[order]),
        merge_tree(outputs[order], weights[order], fan_in=fan_in),
    ):
        np.testing.assert_allclose(got[0], whole, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(got[1], weight, rtol=1e-12, atol=1e-9)


@given(st.lists(st.one_of(st.floats(-5000, 5000), st.just(-np.inf)), min_size=1, max_size=33),
       st.integers(0, 9999))  # fmt: skip
def test_extreme_weights_are_the_softmax_of_the_weights(gammas, seed) -> None:
    rng = np.random.default_rng(seed)
    weights = np.array(gammas)[:, None]
    outputs = rng.normal(size=(len(gammas), 1, 3))
    outputs[np.isneginf(weights[:, 0])] = np.nan  # what nobody attended to is not looked at
    got, gamma = merge(outputs, weights)
    finite = [i for i, g in enumerate(gammas) if g > -np.inf]
    if not finite:
        assert np.isneginf(gamma).all() and not got.any()
        return
    top = max(gammas)
    shares = np.array([2.0 ** max(gammas[i] - top, -1074) for i in finite])
    np.testing.assert_allclose(got[0], shares @ outputs[finite, 0] / shares.sum(), atol=1e-12)
    assert gamma[0] == pytest.approx(top + np.log2(shares.sum()), rel=1e-12, abs=1e-12)


@given(st.integers(2, 9), st.integers(0, 9999))
def test_the_output_lies_between_its_parts(parts, seed) -> None:
    rng = np.random.default_rng(seed)
    outputs, weights = rng.normal(size=(parts, 2, 4)), 400 * rng.normal(size=(parts, 2))
    got, gamma = merge(outputs, weights)
    assert (got <= outputs.max(axis=0) + 1e-12).all() and (got >= outputs.min(axis=0) - 1e-12).all()
    assert (gamma >= weights.max(axis=0)).all()
    assert (gamma <= weights.max(axis=0) + np.log2(parts) + 1e-9).all()


def test_natural_logarithms_would_be_wrong() -> None:
    query, keys, values = drawn(0, 40)
    outputs, weights = sharded_parts(query, keys, values, shards=4)
    wrong = merge(outputs, weights * np.log(2))[0]
    assert np.abs(wrong - plain(query, keys, values)[0]).max() > 1e-3


def test_an_empty_part_changes_nothing_and_the_types_are_float64() -> None:
    query, keys, values = drawn(1, 20)
    none = partial_attention(query, keys[:0], values[:0])
    one = partial_attention(query, keys, values)
    got = merge(np.stack([one[0], none[0]]), np.stack([one[1], none[1]]))
    np.testing.assert_array_equal(got[0], one[0])
    np.testing.assert_array_equal(got[1], one[1])
    assert got[0].dtype == got[1].dtype == np.float64
    half = merge(np.ones((2, 1, 1), dtype=np.float16), np.zeros((2, 1), dtype=np.float16))
    assert half[0].dtype == np.float64 and half[1][0] == 1.0


@pytest.mark.parametrize(
    ("outputs", "weights"),
    [((2, 3, 4), (2, 4)), ((0, 3, 4), (0, 3)), ((3, 4), (3,))],
)
def test_shapes_that_do_not_fit_are_refused(outputs, weights) -> None:
    with pytest.raises(UsageError, match="do not fit"):
        merge(np.zeros(outputs), np.zeros(weights))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_impossible_weights_are_refused(bad) -> None:
    with pytest.raises(UsageError, match="NaN or"):
        merge(np.zeros((1, 1, 1)), np.full((1, 1), bad))


@given(st.integers(0, 500), st.integers(1, 40))
def test_shards_cover_the_context_once(tokens, shards) -> None:
    bounds = shard_bounds(tokens, shards=shards)
    assert [b[0] for b in bounds[1:]] == [b[1] for b in bounds[:-1]]
    assert bounds[0][0] == 0 and bounds[-1][1] == tokens
    sizes = [end - start for start, end in bounds]
    assert max(sizes) - min(sizes) <= 1
