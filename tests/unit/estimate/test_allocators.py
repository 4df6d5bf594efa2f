"""No place is given twice, all come back, and each way of giving wastes what its law says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.allocators import (
    Allocator,
    Buddies,
    FirstFit,
    Pages,
    Slabs,
    all_places,
)
from turbo_lab.estimate.paging import power_of_two

PLACES, LONGEST, BLOCK = 256, 64, 8
MAKERS = {
    "slabs": lambda: Slabs(PLACES, longest=LONGEST),
    "first fit": lambda: FirstFit(PLACES),
    "buddies": lambda: Buddies(PLACES),
    "pages": lambda: Pages(PLACES, block_tokens=BLOCK),
}
MOVES = st.lists(
    st.tuples(st.sampled_from(("admit", "grow", "release")), st.integers(1, LONGEST),
              st.integers(0, 30)),
    max_size=60,
)  # fmt: skip


@pytest.mark.parametrize("kind", MAKERS)
@settings(max_examples=60, deadline=None)
@given(moves=MOVES)
def test_no_place_is_given_twice_and_all_come_back(kind: str, moves: list) -> None:
    pool: Allocator = MAKERS[kind]()
    live: dict[int, int] = {}  # key to final length
    for number, (move, tokens, pick) in enumerate(moves):
        if move == "admit":
            prompt = max(1, tokens // 2)
            if pool.admit(number, prompt_tokens=prompt, final_tokens=tokens):
                live[number] = tokens
        elif live:
            key = [*live][pick % len(live)]
            if move == "grow":
                pool.grow(key, min(tokens, live[key]))
            else:
                pool.release(key)
                del live[key]
        places = all_places(pool, [*live])
        assert len(places) == len(set(places)) == sum(map(pool.held, live))
        assert all(0 <= place < PLACES for place in places)
    for key in live:
        pool.release(key)
    whole = LONGEST if kind != "first fit" else PLACES
    fresh = 0
    while pool.admit(1000 + fresh, prompt_tokens=whole, final_tokens=whole):
        fresh += 1
    assert fresh == PLACES // whole  # nothing was lost on the way


@given(tokens=st.integers(1, LONGEST))
def test_what_each_holds_for_one_request(tokens: int) -> None:
    held = {}
    for kind, make in MAKERS.items():
        pool = make()
        assert pool.admit(0, prompt_tokens=1, final_tokens=tokens)
        assert pool.grow(0, tokens)
        held[kind] = pool.held(0)
    assert held["slabs"] == LONGEST
    assert held["first fit"] == tokens
    assert held["buddies"] == power_of_two(tokens)
    assert held["pages"] == -(-tokens // BLOCK) * BLOCK


def test_holes_that_are_too_small_refuse_although_enough_is_free() -> None:
    pool = FirstFit(30)
    for key in range(3):
        assert pool.admit(key, prompt_tokens=10, final_tokens=10)
    pool.release(0)
    pool.release(2)
    assert sum(length for _, length in pool.holes) == 20
    assert not pool.admit(3, prompt_tokens=1, final_tokens=11)
    pages = Pages(30, block_tokens=1)
    for key in range(3):
        pages.admit(key, prompt_tokens=10, final_tokens=10)
    pages.release(0)
    pages.release(2)
    assert pages.admit(3, prompt_tokens=11, final_tokens=11)


def test_pages_grow_all_or_nothing() -> None:
    pool = Pages(4 * BLOCK, block_tokens=BLOCK)
    assert pool.admit(0, prompt_tokens=3 * BLOCK, final_tokens=6 * BLOCK)
    assert not pool.grow(0, 5 * BLOCK)
    assert len(pool.tables[0]) == 3 and len(pool.free) == 1


def test_wrong_sizes_are_named() -> None:
    with pytest.raises(UsageError, match="power of two"):
        Buddies(100)
    with pytest.raises(UsageError, match="65 tokens is longer than the 64"):
        Slabs(PLACES, longest=LONGEST).admit(0, prompt_tokens=1, final_tokens=65)
    with pytest.raises(UsageError, match="block_tokens is 0"):
        Pages(PLACES, block_tokens=0)
