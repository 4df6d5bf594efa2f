"""The solutions of notebook 05 and the package give the same numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.course.solutions import nb05
from turbo_lab.estimate.paging import Lengths, blocks_of, reserved_shares
from turbo_lab.estimate.prefix import PrefixCache, break_even_bandwidth_bytes_s, hit_tokens

PAIRS = st.lists(st.tuples(st.integers(1, 400), st.integers(1, 100)), min_size=1, max_size=20)
PROMPTS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=20), min_size=1, max_size=6)


@given(st.lists(st.integers(1, 1000), max_size=20), st.integers(1, 64))
def test_empty_places(stored, block):
    held = sum(blocks_of(n, block_tokens=block) * block for n in stored)
    assert nb05.empty_places(stored, block) == held - sum(stored)


@given(PAIRS)
def test_used_share(pairs):
    told = reserved_shares([Lengths(*pair) for pair in pairs], reserve=lambda r: 512)
    assert nb05.used_share(pairs, 512) == pytest.approx(told.used)


@given(st.integers(0, 300), st.integers(1, 300), st.integers(1, 64))
def test_hit_tokens(shared, prompt, block):
    told = hit_tokens(shared_tokens=shared, prompt_tokens=prompt, block_tokens=block)
    assert nb05.hit_tokens(shared, prompt, block) == told


@given(PROMPTS, st.integers(1, 6))
def test_blocks_in_use_are_those_of_the_simulated_engine(prompts, block):
    """But for a last block that is full: the engine computes it again, in a block of its own."""
    long = [prompt if len(prompt) % block else [*prompt, 7] for prompt in prompts]
    if block == 1:
        return
    cache = PrefixCache(200, block_tokens=block)
    for number, prompt in enumerate(long):
        cache.start(number, prompt)
    assert nb05.blocks_in_use(long, block) == cache.held_blocks


@given(st.floats(1e6, 1e11), st.floats(10, 1e5), st.floats(1e3, 1e6))
def test_fetching_wins_above_the_break_even_bandwidth(link, rate, size):
    seconds, way = nb05.fetch_or_compute(1000, size, link, rate)
    edge = break_even_bandwidth_bytes_s(bytes_per_token=size, prefill_tok_s=rate)
    assert (way == "fetch") == (1000 * size / link < 1000 / rate)
    assert seconds <= 1000 / rate
    if abs(link / edge - 1) > 1e-9:
        assert (way == "fetch") == (link > edge)
