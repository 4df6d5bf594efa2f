"""What is found in a prefix cache: the floor rule, the pool's limits, who is forgotten first."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.prefix import (
    PrefixCache,
    break_even_bandwidth_bytes_s,
    hit_tokens,
    offload_hit_tokens,
    tenants_that_fit,
)

BLOCK = 4
PROMPTS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=24), min_size=1, max_size=12)


def prompt(length: int, first: int = 0) -> list[int]:
    return [first, *range(100, 100 + length - 1)]


@pytest.mark.parametrize(
    ("shared", "length", "found"),
    [(0, 20, 0), (3, 20, 0), (4, 20, 4), (11, 20, 8), (20, 20, 16), (20, 21, 20), (4, 4, 0),
     (5, 5, 4), (1, 1, 0)],
)  # fmt: skip
def test_whole_blocks_and_never_the_last_token(shared: int, length: int, found: int) -> None:
    assert hit_tokens(shared_tokens=shared, prompt_tokens=length, block_tokens=BLOCK) == found


@given(shared=st.integers(0, 500), more=st.integers(0, 500), block=st.integers(1, 64))
def test_hit_is_whole_blocks_within_the_shared_part(shared: int, more: int, block: int) -> None:
    length = max(1, shared + more)
    found = hit_tokens(shared_tokens=shared, prompt_tokens=length, block_tokens=block)
    assert found % block == 0 and found <= shared and found < length
    assert min(shared, length - 1) - found < block


@given(shared=st.integers(0, 30), rest=st.integers(1, 30))
def test_simulation_of_two_requests_follows_the_rule(shared: int, rest: int) -> None:
    cache = PrefixCache(100, block_tokens=BLOCK)
    first = [*range(shared), *[1000] * rest]
    second = [*range(shared), *[2000] * rest]
    assert cache.serve(first).hit_tokens == 0
    assert cache.serve(second).hit_tokens == hit_tokens(
        shared_tokens=shared, prompt_tokens=len(second), block_tokens=BLOCK
    )


@settings(max_examples=60, deadline=None)
@given(prompts=PROMPTS, blocks=st.integers(6, 12))
def test_blocks_are_conserved_and_never_shared_by_different_content(
    prompts: list[list[int]], blocks: int
) -> None:
    cache = PrefixCache(blocks, block_tokens=BLOCK)
    running: list[int] = []
    for number, tokens in enumerate(prompts):
        while True:
            try:
                use = cache.start(number, tokens)
                break
            except UsageError:
                if not running:
                    return
                cache.end(running.pop(0))
        running.append(number)
        assert use.hit_tokens < len(tokens)
        content: dict[int, tuple[int, ...]] = {}
        for one in running:
            table = cache.tables[one]
            assert len(table) == len(set(table)) == -(-len(prompts[one]) // BLOCK)
            for index, block in enumerate(table):
                told = tuple(prompts[one][: (index + 1) * BLOCK])
                full = len(told) == (index + 1) * BLOCK
                assert content.setdefault(block, told) == told or not full
        assert cache.held_blocks <= blocks
    for one in running:
        cache.end(one)
    assert cache.held_blocks == 0
    assert len(cache._free) == blocks


def test_a_refused_start_takes_nothing() -> None:
    cache = PrefixCache(5, block_tokens=BLOCK)
    cache.start("a", prompt(12))
    with pytest.raises(UsageError, match="3 blocks are wanted, 2 are free"):
        cache.start("b", prompt(12, first=1))
    assert "b" not in cache.tables
    cache.end("a")
    assert cache.start("b", prompt(20, first=1)).new_blocks == 5


def test_a_shared_block_stays_until_its_last_user_ends() -> None:
    cache = PrefixCache(10, block_tokens=BLOCK)
    cache.start("a", prompt(9))
    use = cache.start("b", prompt(9))
    assert use.hit_tokens == 8 and use.new_blocks == 1
    assert cache.tables["a"][:2] == cache.tables["b"][:2]
    assert cache.held_blocks == 4
    cache.end("a")
    assert cache.held_blocks == 3


def test_the_end_of_the_oldest_prompt_is_forgotten_first() -> None:
    cache = PrefixCache(6, block_tokens=BLOCK)
    cache.serve(prompt(13))  # three full blocks and one that is not
    cache.serve(prompt(9, first=1))  # two full blocks and one that is not
    assert cache.serve(prompt(9, first=2)).evicted == 2  # the third and the second block
    assert cache.serve(prompt(13)).hit_tokens == BLOCK


def test_another_salt_shares_nothing() -> None:
    cache = PrefixCache(20, block_tokens=BLOCK)
    cache.serve(prompt(12), salt="a")
    assert cache.serve(prompt(12), salt="b").hit_tokens == 0
    assert cache.serve(prompt(12), salt="a").hit_tokens == 8


def test_a_changed_first_token_changes_every_block() -> None:
    cache = PrefixCache(20, block_tokens=BLOCK)
    cache.serve(prompt(17))
    assert cache.serve(prompt(17, first=1)).hit_tokens == 0


def found_again(blocks: int, *, tenants: int, prefix: int, rest: int) -> list[int]:
    """Hit tokens of the second and third round; behind its prefix every prompt is new."""
    cache, fresh = PrefixCache(blocks, block_tokens=BLOCK), itertools.count(1000)
    shared = [[t, *range(50, 50 + prefix * BLOCK - 1)] for t in range(tenants)]
    rounds = [
        sum(cache.serve([*one, *itertools.islice(fresh, rest)]).hit_tokens for one in shared)
        for _ in range(3)
    ]
    return rounds[1:]


@given(blocks=st.integers(6, 40), prefix=st.integers(1, 5), rest=st.integers(1, 3 * BLOCK + 1))
@example(blocks=24, prefix=4, rest=4 * BLOCK)  # 3 tenants; with one rest for all it would be 5
def test_tenants_that_fit_are_all_found_and_one_more_loses(
    blocks: int, prefix: int, rest: int
) -> None:
    size = {"prefix_tokens": prefix * BLOCK, "prompt_tokens": prefix * BLOCK + rest}
    fit = tenants_that_fit(pool_blocks=blocks, block_tokens=BLOCK, **size)
    if prefix + -(-rest // BLOCK) > blocks:
        assert fit == 0
        return
    all_tokens = prefix * BLOCK
    for count in (fit, fit + 1):
        again = found_again(blocks, tenants=count, prefix=prefix, rest=rest)
        assert (again == [count * all_tokens] * 2) is (count == fit)


def test_blocks_of_the_rest_take_their_place() -> None:
    """The lesson's GPU settings: 24 blocks of 16, prefixes of 4 blocks, 64 tokens behind them."""
    size = {"pool_blocks": 24, "prefix_tokens": 64, "block_tokens": 16}
    assert tenants_that_fit(prompt_tokens=64 + 64, output_tokens=2, **size) == 3
    assert tenants_that_fit(prompt_tokens=64 + 14, output_tokens=2, **size) == 5


@pytest.mark.parametrize(("length", "found"), [(1, 0), (4, 0), (5, 0), (6, 4), (577, 572)])
def test_offload_rule(length: int, found: int) -> None:
    assert offload_hit_tokens(prompt_tokens=length, block_tokens=BLOCK) == found


def test_break_even() -> None:
    assert break_even_bandwidth_bytes_s(bytes_per_token=46_080, prefill_tok_s=1000) == 46_080_000
    with pytest.raises(UsageError):
        break_even_bandwidth_bytes_s(bytes_per_token=0, prefill_tok_s=1)


def test_bad_input_is_named() -> None:
    with pytest.raises(UsageError, match="prompt 0"):
        hit_tokens(shared_tokens=0, prompt_tokens=0, block_tokens=4)
    with pytest.raises(UsageError, match="fills no block"):
        tenants_that_fit(pool_blocks=9, prefix_tokens=3, prompt_tokens=5, block_tokens=4)
    with pytest.raises(UsageError, match="0 blocks"):
        PrefixCache(0, block_tokens=4)
