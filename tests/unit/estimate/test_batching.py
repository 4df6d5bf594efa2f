"""Schedules: no seat holds two jobs, nothing idles that could work, and seconds add up."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.batching import (
    Job,
    Schedule,
    chunks,
    continuous,
    play,
    play_users,
    prompt_steps_s,
    static_batches,
)

from .small_model import MODEL

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=25)
SEATS = st.integers(1, 9)


def jobs(lengths: list[int], priorities: list[int] | None = None) -> list[Job]:
    return [
        Job(16, n, priority=p)
        for n, p in zip(lengths, priorities or [0] * len(lengths), strict=True)
    ]


def well_formed(found: Schedule) -> None:
    by_seat: dict[int, list] = {}
    for job, span in zip(found.jobs, found.spans, strict=True):
        assert span.end - span.first == job.output_tokens and 0 <= span.seat < found.seats
        by_seat.setdefault(span.seat, []).append(span)
    for spans in by_seat.values():
        ordered = sorted(spans, key=lambda s: s.first)
        assert all(a.end <= b.first for a, b in pairwise(ordered)), "two jobs on one seat"


@settings(max_examples=60)
@given(LENGTHS, SEATS)
def test_both_ways_are_schedules_and_continuous_is_never_longer(
    lengths: list[int], seats: int
) -> None:
    one, other = (way(jobs(lengths), seats=seats) for way in (continuous, static_batches))
    well_formed(one)
    well_formed(other)
    assert one.steps <= other.steps
    least = max(max(lengths), math.ceil(sum(lengths) / seats))
    assert least <= one.steps <= sum(lengths) / seats + max(lengths)  # Graham's bound
    assert 0 <= one.idle_share <= other.idle_share < 1


@settings(max_examples=40)
@given(LENGTHS, SEATS)
def test_no_seat_idles_while_a_job_waits(lengths: list[int], seats: int) -> None:
    found = continuous(jobs(lengths), seats=seats)
    last_start = max(span.first for span in found.spans)
    for step in range(last_start):
        assert sum(s.first <= step < s.end for s in found.spans) == min(seats, len(lengths))


@given(st.integers(1, 20), st.integers(1, 5), SEATS)
def test_equal_lengths_gain_nothing(length: int, batches: int, seats: int) -> None:
    equal = jobs([length] * (batches * seats))
    assert continuous(equal, seats=seats).steps == static_batches(equal, seats=seats).steps
    assert static_batches(equal, seats=seats).idle_share == 0


def test_a_known_case_by_hand() -> None:
    mixed = jobs([2, 8, 2, 8])
    assert static_batches(mixed, seats=2).steps == 16
    assert static_batches(mixed, seats=2).idle_share == pytest.approx(1 - 20 / 32)
    found = continuous(mixed, seats=2)
    assert [(s.first, s.end) for s in found.spans] == [(0, 2), (0, 8), (2, 4), (4, 12)]


def test_lower_priority_values_go_first_and_ties_keep_their_order() -> None:
    found = continuous(jobs([5, 5, 1, 1], [64, 64, 8, 8]), seats=1)
    assert [s.first for s in found.spans] == [2, 7, 0, 1]


@settings(max_examples=30, deadline=None)
@given(LENGTHS, SEATS)
def test_seconds_are_ordered_and_add_up(lengths: list[int], seats: int) -> None:
    found = continuous(jobs(lengths), seats=seats)
    times = play(found, model=MODEL)
    assert all(t.start_s < t.first_s <= t.end_s for t in times)
    assert min(t.start_s for t in times) == 0
    work = len(lengths) * MODEL.prefill_work_s(tokens=16)
    steps = found.steps * MODEL.step_s
    tokens = sum(n - 1 for n in lengths) * MODEL.sequence_s
    total = max(t.end_s for t in times)
    assert total >= work + steps + tokens > 0.5 * total, "steps, tokens, prompts; rest is cache"


def test_one_job_alone_is_the_step_model() -> None:
    (alone,) = play(continuous([Job(16, 5)], seats=4), model=MODEL)
    assert alone.first_s == pytest.approx(MODEL.step_s + MODEL.prefill_work_s(tokens=16))
    decode = [MODEL.decode_s(batch=1, context_tokens=16 + k) for k in (1, 2, 3, 4)]
    assert alone.end_s - alone.first_s == pytest.approx(sum(decode))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 3), st.integers(1, 6), st.integers(1, 12))
def test_users_are_all_served_and_wait_for_nothing_but_steps(
    users: int, rounds: int, seats: int, tokens: int
) -> None:
    times = play_users(Job(16, tokens), users=users, rounds=rounds, seats=seats, model=MODEL)
    assert len(times) == users * rounds
    assert all(t.start_s < t.first_s <= t.end_s for t in times)
    at_once = max(sum(t.start_s < at <= t.end_s for t in times) for at in (x.end_s for x in times))
    assert at_once <= users, "a user asks again only after the answer"
    ends = [t.end_s for t in times]
    assert ends == sorted(ends)
    work = users * rounds * MODEL.prefill_work_s(tokens=16)
    assert ends[-1] >= work + rounds * tokens * MODEL.step_s


def test_one_user_alone_and_the_first_of_two() -> None:
    read_s = MODEL.step_s + MODEL.prefill_work_s(tokens=16)
    (alone,) = play_users(Job(16, 3), users=1, rounds=1, seats=4, model=MODEL)
    assert alone.first_s == pytest.approx(read_s)
    first, second = sorted(
        play_users(Job(16, 3), users=2, rounds=1, seats=4, model=MODEL), key=lambda t: t.first_s
    )
    assert first.first_s == pytest.approx(read_s), "it starts a step at once"
    assert second.first_s > 1.9 * read_s, "it waits for that step, then it is read"


def test_who_finds_no_seat_waits_for_one() -> None:
    times = play_users(Job(16, 5), users=4, rounds=1, seats=2, model=MODEL)
    firsts, ends = sorted(t.first_s for t in times), sorted(t.end_s for t in times)
    assert firsts[2] > ends[0]


@given(st.integers(1, 3000), st.integers(1, 700))
def test_chunks_cover_the_prompt_once(tokens: int, size: int) -> None:
    found = chunks(tokens, size=size)
    assert sum(new for new, _ in found) == tokens and max(new for new, _ in found) <= size
    assert [past for _, past in found] == list(range(0, tokens, size))


def test_chunks_shorten_the_pause_and_lengthen_the_whole() -> None:
    def steps(chunk: int) -> list[float]:
        return prompt_steps_s(1024, chunk=chunk, decode_contexts=[64] * 4, model=MODEL)

    whole, cut = steps(1024), steps(128)
    assert len(whole) == 1 and len(cut) == 8
    assert max(cut) < whole[0] / 3, "the pause of a running reply"
    assert sum(cut) > whole[0] + 6 * MODEL.step_s, "the price: a step's fixed cost per piece"


def test_what_is_no_work_is_refused() -> None:
    for wrong in (lambda: Job(0, 1), lambda: Job(1, 0), lambda: continuous([], seats=1),
                  lambda: static_batches(jobs([1]), seats=0), lambda: chunks(0, size=1),
                  lambda: chunks(1, size=0)):  # fmt: skip
        with pytest.raises(UsageError, match="at least"):
            wrong()
