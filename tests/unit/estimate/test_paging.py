"""Closed forms of waste against the step-by-step count, on drawn and on public lengths."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.estimate.allocators import Buddies, FirstFit, Pages, Slabs
from turbo_lab.estimate.occupancy import Occupancy, occupancy, snapshot
from turbo_lab.estimate.paging import (
    Lengths,
    Shares,
    blocks_of,
    expected_block_waste,
    paged_shares,
    power_of_two,
    reserved_shares,
)
from turbo_lab.workload.traces import TraceRow, bundled_trace, read_trace

PLACES, LONGEST = 65_536, 8192
PUBLIC = repository_root().parent / "shared/traces/AzureLLMInferenceTrace_conv.csv"


def lengths(rows: list[TraceRow]) -> list[Lengths]:
    sized = [Lengths(r.prompt_tokens, r.output_tokens) for r in rows]
    return [one for one in sized if one.stored_tokens <= LONGEST]


@pytest.fixture(scope="module")
def chat() -> list[Lengths]:
    return lengths(bundled_trace())


@pytest.fixture(scope="module")
def paged(chat: list[Lengths]) -> dict[int, Occupancy]:
    return {b: occupancy(chat, Pages(PLACES, block_tokens=b)) for b in (16, 64, 256)}


def total(shares: Shares) -> float:
    return shares.used + shares.reserved + shares.internal + shares.free


def test_slabs_waste_what_the_closed_form_says(chat: list[Lengths]) -> None:
    counted = occupancy(chat, Slabs(PLACES, longest=LONGEST)).shares
    told = reserved_shares(chat, reserve=lambda r: LONGEST)
    assert counted.used == pytest.approx(told.used, rel=0.05)
    assert counted.reserved == pytest.approx(told.reserved, rel=0.10)
    assert counted.internal == pytest.approx(told.internal, rel=0.02)
    assert counted.free == 0.0


@pytest.mark.parametrize("block", [16, 64, 256])
def test_pages_leave_half_a_block_empty(paged: dict[int, Occupancy], block: int) -> None:
    assert paged[block].empty_places == pytest.approx(expected_block_waste(block), rel=0.05)
    assert paged[block].running > 0


def test_contiguous_storage_leaves_holes_even_when_it_knows_every_length(
    chat: list[Lengths],
) -> None:
    best = occupancy(chat, FirstFit(PLACES))
    assert best.shares.internal == pytest.approx(0, abs=1e-12)
    assert best.shares.free > 0.05  # nobody's, and too small for the next in the queue


def test_buddies_waste_inside_what_the_closed_form_says(chat: list[Lengths]) -> None:
    counted = occupancy(chat, Buddies(PLACES)).shares
    told = reserved_shares(chat, reserve=lambda r: power_of_two(r.stored_tokens))
    inside = counted.internal / (1 - counted.free)
    assert inside == pytest.approx(told.internal, rel=0.05)


def test_every_share_adds_up(chat: list[Lengths], paged: dict[int, Occupancy]) -> None:
    shares = [paged[16].shares, paged_shares(chat, block_tokens=16),
              reserved_shares(chat, reserve=lambda r: LONGEST, unusable=0.1),
              occupancy(chat, Buddies(PLACES)).shares]  # fmt: skip
    for one in shares:
        assert total(one) == pytest.approx(1.0)
        assert min(one.used, one.reserved, one.internal, one.free) >= -1e-12


@pytest.mark.skipif(not PUBLIC.exists(), reason="the public trace is not on this machine")
def test_closed_forms_hold_on_the_public_trace() -> None:
    rows = lengths(read_trace(PUBLIC))[:1500]
    counted = occupancy(rows, Slabs(2 * PLACES, longest=LONGEST)).shares
    assert counted.used == pytest.approx(
        reserved_shares(rows, reserve=lambda r: LONGEST).used, rel=0.05
    )
    pages = occupancy(rows, Pages(PLACES, block_tokens=128))
    assert pages.empty_places == pytest.approx(63.5, rel=0.05)


@given(tokens=st.integers(1, 10_000), block=st.integers(1, 512))
def test_whole_blocks(tokens: int, block: int) -> None:
    count = blocks_of(tokens, block_tokens=block)
    assert (count - 1) * block < tokens <= count * block


@given(block=st.integers(1, 512))
def test_expected_waste_is_the_mean_over_all_remainders(block: int) -> None:
    wastes = [blocks_of(n, block_tokens=block) * block - n for n in range(1, block + 1)]
    assert sum(wastes) / block == expected_block_waste(block)


@given(tokens=st.integers(1, 1 << 20))
def test_power_of_two_is_the_next_one(tokens: int) -> None:
    found = power_of_two(tokens)
    assert found & (found - 1) == 0 and found // 2 < tokens <= found


def test_paging_preempts_where_it_gave_out_too_much() -> None:
    rng = random.Random(1)
    requests = [Lengths(rng.randint(1, 20), 200) for _ in range(200)]
    found = occupancy(requests, Pages(1024, block_tokens=16))
    assert found.preemptions > 0
    assert occupancy(requests, Slabs(1024, longest=256)).preemptions == 0


def test_bad_input_is_named(chat: list[Lengths]) -> None:
    with pytest.raises(UsageError, match="100 places cannot hold"):
        reserved_shares(chat, reserve=lambda r: 100)
    with pytest.raises(UsageError, match="does not fit into 64 places even alone"):
        occupancy([Lengths(100, 5)], Pages(64, block_tokens=16))
    with pytest.raises(UsageError, match="too few for a queue"):
        occupancy([Lengths(10, 5)] * 3, Pages(1024, block_tokens=16))
    with pytest.raises(UsageError, match="at least one token"):
        paged_shares([Lengths(10, 0)], block_tokens=16)
    with pytest.raises(UsageError, match="no requests"):
        paged_shares([], block_tokens=16)


def test_a_snapshot_shows_whole_blocks_that_hold_their_tokens(chat: list[Lengths]) -> None:
    found = snapshot(chat, Pages(PLACES, block_tokens=64), steps=50)
    assert len(found) > 10
    for key, (spans, stored) in found.items():
        held = sum(length for _, length in spans)
        assert chat[key].prompt_tokens <= stored <= held < stored + 64 + 1
    places = [
        p for spans, _ in found.values() for start, n in spans for p in range(start, start + n)
    ]
    assert len(places) == len(set(places)) <= PLACES
    with pytest.raises(UsageError, match="too few for 500 steps"):
        snapshot(chat[:3], Pages(PLACES, block_tokens=64), steps=500)
