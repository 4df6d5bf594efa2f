"""The closed loop's law against its own identities, against the scheduler, and the pool by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.batching import Job, continuous, play
from turbo_lab.estimate.concurrency import ClosedLoop, Pool, request_blocks
from turbo_lab.estimate.fit import StepModel
from turbo_lab.hardware.roofline import Roof

from .small_model import SPEC


def model(step_s: float = 0.02, sequence_s: float = 1e-3, prompt: float = 900.0) -> StepModel:
    return StepModel(
        SPEC, Roof(4e13, 4e13), 4, "fp32", step_s=step_s, sequence_s=sequence_s,
        inverse_cache_efficiency=2.0, request_s=step_s, inverse_linear_efficiency=prompt,
        inverse_attention_efficiency=0.0,
    )  # fmt: skip


def loop(**more: float) -> ClosedLoop:
    return ClosedLoop(model(**more), input_tokens=64, output_tokens=32, seats=16)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.floats(1e-3, 0.1), st.floats(1e-5, 1e-2))
def test_littles_law_holds_at_every_load(users: int, step_s: float, sequence_s: float) -> None:
    one = loop(step_s=step_s, sequence_s=sequence_s)
    assert one.throughput_tok_s(users) * one.e2e_s(users) == pytest.approx(users * 32)
    assert one.e2e_s(users) >= one.service_s(users)
    assert one.e2e_s(users) == one.service_s(users) or users > 16


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 40), st.floats(5e-3, 0.1), st.floats(1e-4, 5e-3))
def test_the_split_adds_up_to_the_round(users: int, step_s: float, sequence_s: float) -> None:
    """However the users fall out of step, the sum stays: work is moved, not saved."""
    one = loop(step_s=step_s, sequence_s=sequence_s)
    ttft_s, tpot_s = one.ttft_tpot_s(users, rounds=6)
    assert ttft_s + 31 * tpot_s == pytest.approx(one.e2e_s(users), rel=0.15)


def test_beyond_the_seats_throughput_is_flat_and_the_first_token_waits() -> None:
    one = loop()
    assert one.throughput_tok_s(64) == pytest.approx(one.throughput_tok_s(16))
    assert one.e2e_s(64) == pytest.approx(4 * one.service_s(16))
    inside, outside = one.ttft_tpot_s(16, rounds=4), one.ttft_tpot_s(48, rounds=4)
    assert outside[0] > 2 * inside[0] and outside[1] == pytest.approx(inside[1], rel=0.2)


def test_out_of_step_a_reply_pays_for_others_prompts() -> None:
    """Half as many users more than seats: they come in while others are being answered."""
    one = loop(prompt=100_000.0)
    assert one.ttft_tpot_s(24)[1] > 1.1 * one.ttft_tpot_s(16)[1]


@settings(max_examples=40, deadline=None)
@given(st.floats(2e-3, 0.1), st.floats(1e-5, 5e-3), st.floats(10.0, 5000.0))
def test_the_knee_is_where_power_is_greatest(
    step_s: float, sequence_s: float, prompt: float
) -> None:
    one = loop(step_s=step_s, sequence_s=sequence_s, prompt=prompt)
    users = range(2, 17)
    power = {u: one.throughput_tok_s(u) / one.e2e_s(u) for u in users}
    best = max(power, key=power.__getitem__)
    assert abs(best - min(max(one.knee_users(), 2), 16)) <= 1


def test_a_knee_by_hand() -> None:
    """E2E = a + b users; the knee is a / b and never above the seats."""
    one = loop(step_s=0.005)
    b = one.service_s(10) - one.service_s(9)
    a = one.service_s(9) - 9 * b
    assert one.knee_users() == pytest.approx(a / b, rel=1e-6)
    assert loop(step_s=1.0, sequence_s=1e-6, prompt=1.0).knee_users() == 16


@pytest.mark.parametrize("users", [1, 2, 4, 8, 16])
def test_the_closed_form_agrees_with_the_scheduler(users: int) -> None:
    """One round, step by step. The scheduler lets all start together, so it saves one step."""
    one = loop()
    times = play(continuous([Job(64, 32)] * users, seats=16), model=one.model)
    extra_s = one.model.step_s if users > 1 else 0.0
    assert one.service_s(users) - extra_s == pytest.approx(times[0].end_s, rel=0.01)


def test_impossible_loads_are_refused() -> None:
    with pytest.raises(UsageError, match="at least"):
        ClosedLoop(model(), input_tokens=64, output_tokens=1, seats=16)
    with pytest.raises(UsageError, match="users"):
        loop().e2e_s(0)


def test_the_pool_by_hand() -> None:
    pool = Pool(blocks=20, block_tokens=128, prompt_tokens=100, output_tokens=60)
    assert (pool.first_blocks, pool.last_blocks, pool.users) == (1, 2, 10)
    assert [pool.preemptions(u) for u in (1, 10, 11, 16, 40)] == [0, 0, 1, 6, 10]


def test_the_last_token_is_not_stored() -> None:
    assert Pool(9, 128, 100, 29).last_blocks == 1 and Pool(9, 128, 100, 30).last_blocks == 2


@given(st.integers(1, 60), st.integers(1, 64), st.integers(1, 300), st.integers(1, 300),
       st.integers(1, 80))  # fmt: skip
def test_preemption_needs_more_than_the_pool(
    blocks: int, block: int, prompt: int, reply: int, users: int
) -> None:
    pool = Pool(blocks, block, prompt, reply)
    out = pool.preemptions(users)
    assert 0 <= out <= users
    if users * pool.last_blocks <= blocks:
        assert out == 0, "what fits to its end is never thrown out"
    if pool.first_blocks == pool.last_blocks:
        assert out == 0, "what does not grow waits at the door, it is not thrown out"


def test_blocks_are_whole() -> None:
    assert [request_blocks(n, block_tokens=16) for n in (1, 16, 17, 32)] == [1, 1, 2, 2]
    with pytest.raises(UsageError, match="at least 1"):
        request_blocks(0, block_tokens=16)
