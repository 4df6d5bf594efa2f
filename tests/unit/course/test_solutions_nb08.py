"""The solutions of notebook 08 and the package give the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.course.solutions import nb08
from turbo_lab.estimate.proposals import Proposals, mixed_speedup
from turbo_lab.estimate.speculation import expected_tokens, speedup
from turbo_lab.speculative.accept import accept_greedy, residual
from turbo_lab.speculative.lookup import propose

ALPHA, K = st.floats(0, 1), st.integers(1, 10)
IDS = st.lists(st.integers(0, 3), max_size=30)


@given(ALPHA, K)
def test_tokens_per_step(alpha: float, k: int) -> None:
    assert nb08.tokens_per_step(alpha, k) == pytest.approx(expected_tokens(alpha, draft_tokens=k))


@given(ALPHA, K, st.floats(0, 2), st.floats(1, 5))
def test_speedup(alpha: float, k: int, c: float, v: float) -> None:
    tokens = expected_tokens(alpha, draft_tokens=k)
    told = speedup(alpha, draft_tokens=k, draft_cost=c, verify_cost=lambda _: v)
    assert nb08.gain(tokens, k, c, v) == pytest.approx(told)


@given(IDS, st.data())
def test_written(guess: list[int], data: st.DataObject) -> None:
    size = len(guess) + 1
    target = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    told = accept_greedy(guess, target_tokens=target)
    assert nb08.written(guess, target) == list(told.tokens)


@given(IDS, st.integers(1, 4), K)
def test_look_up(tokens: list[int], ending: int, k: int) -> None:
    told = propose(tokens, draft_tokens=k, shortest=ending, longest=ending)
    assert nb08.look_up(tokens, ending, k) == told


@given(ALPHA, ALPHA, K, st.floats(1, 5))
def test_mixed_speedup(share: float, alpha: float, k: int, v: float) -> None:
    told = mixed_speedup(
        Proposals.fixed(k, share=share), acceptance=alpha, verify_cost=lambda _: v
    )  # fmt: skip
    tokens = expected_tokens(alpha, draft_tokens=k)
    assert nb08.mixed_gain(share, tokens, v) == pytest.approx(told)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6, unique=True), st.data())
def test_redraw(weights: list[int], data: st.DataObject) -> None:
    other = data.draw(st.permutations(weights).filter(lambda w: w != weights))
    p, q = np.array(weights) / sum(weights), np.array(other) / sum(other)
    assert nb08.redraw(p.tolist(), q.tolist()) == pytest.approx(residual(q, p).tolist())
