"""The solutions of notebook 10 and the package give the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.course.solutions import nb10
from turbo_lab.estimate.experts import capacity, dispatch_bytes, dropped_share
from turbo_lab.estimate.pipeline import bubble_fraction, decode_round_s, kept_micro_batches
from turbo_lab.parallel.routing import top_k_routes
from turbo_lab.parallel.schedule import most_kept, training_order

SMALL = st.integers(1, 8)


@given(SMALL, SMALL)
def test_bubble(p: int, m: int) -> None:
    assert nb10.bubble(p, m) == pytest.approx(bubble_fraction(p, micro_batches=m))


@given(st.lists(st.floats(0.1, 9), min_size=1, max_size=5), SMALL)
def test_round(stage_s: list[float], m: int) -> None:
    assert nb10.round_s(stage_s, m) == decode_round_s(stage_s, micro_batches=m)


@given(st.sampled_from(["GPipe", "1F1B"]), SMALL, SMALL)
def test_kept(name: str, p: int, m: int) -> None:
    order = training_order(name, stages=p, micro_batches=m)
    for stage in range(p):
        told = kept_micro_batches(name, stages=p, stage=stage, micro_batches=m)
        assert nb10.kept(name, p, stage, m) == told == most_kept(order[stage])


@given(st.integers(1, 20), st.integers(1, 6), st.integers(0, 99))
def test_loads(tokens: int, k: int, seed: int) -> None:
    logits = np.random.default_rng(seed).integers(0, 4, (tokens, 6)).astype(float)  # many equal
    assert nb10.loads(logits.tolist(), k) == top_k_routes(logits, k=k).load().tolist()


@given(st.lists(st.integers(0, 40), min_size=2, max_size=8).filter(any),
       st.sampled_from([0.25, 0.5, 1.0, 1.25, 2.0]))  # fmt: skip
def test_dropped(loads: list[int], factor: float) -> None:
    pairs = sum(loads)
    slots = capacity(pairs, experts=len(loads), experts_per_token=1, capacity_factor=factor)
    assert nb10.dropped(loads, factor) == pytest.approx(dropped_share(loads, slots=slots))


@given(SMALL, st.integers(1, 8), st.integers(1, 16))
def test_sent(each: int, k: int, n: int) -> None:
    one_way = dispatch_bytes(
        each, hidden=1, experts_per_token=k, ranks=n, element_bytes=1, merged=False
    )
    assert nb10.sent(each * n, k, n) == pytest.approx(2 * one_way)
