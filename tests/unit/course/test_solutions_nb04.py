"""Solutions of notebook 04 and the package give the same numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.course.solutions import nb04
from turbo_lab.estimate.batching import Job, chunks, continuous, static_batches
from turbo_lab.estimate.concurrency import Pool

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=30)


@given(LENGTHS, st.integers(1, 9))
def test_idle_share_is_the_schedules(lengths: list[int], seats: int) -> None:
    plan = static_batches([Job(1, n) for n in lengths], seats=seats)
    assert nb04.idle_share(lengths, seats) == pytest.approx(plan.idle_share)


@given(st.integers(1, 300), st.sampled_from([16, 32, 128]), st.integers(1, 400),
       st.integers(2, 400))  # fmt: skip
def test_pool_is_the_packages(blocks: int, block: int, prompt: int, reply: int) -> None:
    assert (
        nb04.users_in_pool(blocks, block, prompt, reply) == Pool(blocks, block, prompt, reply).users
    )


@given(st.integers(1, 3000), st.integers(1, 600))
def test_chunks_are_the_packages(prompt: int, size: int) -> None:
    pieces = chunks(prompt, size=size)
    pause_s, whole_s = nb04.chunked(prompt, size, 0.03, 0.001)
    assert pause_s == pytest.approx(max(0.03 + new * 0.001 for new, _ in pieces))
    assert whole_s == pytest.approx(sum(0.03 + new * 0.001 for new, _ in pieces))


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=24))
def test_turns_serve_tenants_evenly(tenants: list[str]) -> None:
    """On one seat, while several tenants wait, none is ever two replies ahead of another."""
    order = nb04.fair_priorities(tenants)
    plan = continuous([Job(1, 1, priority=p) for p in order], seats=1)
    line = [tenants[i] for i in sorted(range(len(tenants)), key=lambda i: plan.spans[i].first)]
    for cut in range(len(line)):
        waiting = set(line[cut:])
        served = [line[:cut].count(t) for t in waiting]
        assert max(served) - min(served) <= 1
