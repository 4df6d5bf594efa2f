"""The load that tells two routing policies apart: its sizes, its order, what is foretold of it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.sim.router_live import Routed, core_shares, replica_args
from turbo_lab.sim.router_witness import (
    SharedBeginnings,
    foretell,
    hit_range,
    schedule,
    simulated_router,
)

from .replica_costs import calibration_for

LOAD = SharedBeginnings()
CALIBRATION = calibration_for(LOAD)
TIMES = schedule(LOAD, CALIBRATION, share=0.5)
ALL_LATER = (LOAD.turns - 1) * LOAD.tenants * LOAD.beginning_tokens


@given(
    tenants=st.integers(4, 16), turns=st.integers(2, 5), blocks=st.integers(1, 4),
    seed=st.integers(0, 50),
)  # fmt: skip
@settings(max_examples=30)
def test_every_tenant_asks_as_often_and_shares_its_beginning_alone(tenants, turns, blocks, seed):
    load = SharedBeginnings(tenants=tenants, turns=turns, beginning_blocks=blocks, seed=seed)
    order = load.order()
    assert order[:tenants] == list(range(tenants))
    assert set(Counter(order).values()) == {turns}
    requests = load.requests(model="lab", vocab=4000)
    trace = load.trace([0.0] * len(order))
    for tenant in range(tenants):
        mine = [i for i, t in enumerate(order) if t == tenant]
        starts = {tuple(requests[i].prompt[: load.beginning_tokens]) for i in mine}
        assert len(starts) == len({trace[i].block_ids[:blocks] for i in mine}) == 1
        assert len({tuple(requests[i].prompt) for i in mine}) == turns
    ends = [row.block_ids[-1] for row in trace]
    assert len(set(ends)) == len(ends) and min(ends) >= tenants * blocks
    assert (
        {len(r.prompt) for r in requests}
        == {load.prompt_tokens}
        == {row.input_tokens for row in trace}
    )


@pytest.mark.parametrize("wrong", [
    {"tenants": 3}, {"turns": 1}, {"beginning_blocks": 0}, {"rest_tokens": 120},
])  # fmt: skip
def test_sizes_that_could_not_be_foretold_are_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        SharedBeginnings(**wrong)


def test_a_share_of_the_tenants_fits_and_all_of_them_do_not():
    share = LOAD.tenants // LOAD.replicas * LOAD.beginning_blocks
    assert share < LOAD.pool_blocks < LOAD.tenants * LOAD.beginning_blocks


def test_times_rise_and_the_opening_is_over_before_the_rest_begins():
    assert sorted(TIMES) == TIMES and len(TIMES) == len(LOAD.order())
    opening = foretell(LOAD, CALIBRATION, TIMES, policy="round_robin").jobs[: LOAD.tenants]
    assert max(job.last_fs for job in opening) < TIMES[LOAD.tenants] * 1e15


def test_following_prefixes_finds_everything_and_round_robin_half_of_it():
    aware = foretell(LOAD, CALIBRATION, TIMES, policy="cache_aware")
    blind = foretell(LOAD, CALIBRATION, TIMES, policy="round_robin")
    assert aware.hit_tokens == ALL_LATER
    assert 0 < blind.hit_tokens < 0.7 * aware.hit_tokens
    assert aware.metrics["ttft"].percentile(50) < 0.5 * blind.metrics["ttft"].percentile(50)
    requests = len(LOAD.order())
    assert set(Counter(job.replica for job in aware.jobs).values()) == {requests // LOAD.replicas}


def test_the_count_hardly_hangs_on_the_speed_of_the_engine():
    assert hit_range(LOAD, CALIBRATION, TIMES, policy="cache_aware") == (ALL_LATER, ALL_LATER)
    least, most = hit_range(LOAD, CALIBRATION, TIMES, policy="round_robin")
    seen = foretell(LOAD, CALIBRATION, TIMES, policy="round_robin").hit_tokens
    assert least <= seen <= most < 1.3 * least


def test_a_policy_without_a_counterpart_is_refused():
    with pytest.raises(UsageError, match="sticky_least_loaded"):
        simulated_router("sticky_least_loaded")
    with pytest.raises(UsageError, match="share is 0"):
        schedule(LOAD, CALIBRATION, share=0)


def test_a_scaled_calibration_takes_as_many_times_as_long():
    slow = CALIBRATION.scaled(3.0)
    one, other = (c.step_s(100, decode_sequences=3, context_tokens=90, pairs=50)
                  for c in (CALIBRATION, slow))  # fmt: skip
    assert other == pytest.approx(3 * one) and slow.blocks == CALIBRATION.blocks
    with pytest.raises(UsageError, match="factor"):
        CALIBRATION.scaled(0)


def test_replicas_differ_and_have_caches_of_the_loads_size(monkeypatch):
    from turbo_lab.core import host
    from turbo_lab.engines.args import VllmArgs

    monkeypatch.setattr(host, "core_ids", lambda: (0, 1, 4, 5))
    assert core_shares(2) == [(0, 1), (4, 5)] and core_shares(8) == [(0, 1, 4, 5)] * 8
    one, two = replica_args(VllmArgs.make(model="m"), LOAD)
    assert (one.cores, two.cores) == ((0, 1), (4, 5))
    for device in ("cpu", "gpu"):
        pair = replica_args(VllmArgs.make(model="m", device=device), LOAD)
        assert len({args.digest() for args in pair}) == 2
        assert all(args.enable_prefix_caching for args in pair)
        assert pair[0].extra == (("--num-gpu-blocks-override", str(LOAD.pool_blocks + 1)),)


def test_a_pass_comes_back_from_json_as_it_was():
    one = Routed("cache_aware", 30, 40, (10, 20), (3, 4), (0.1, 0.3), 2.0)
    assert Routed.from_dict(one.to_dict()) == one
    assert one.hit_rate == 0.75 and one.ttft_median_s == pytest.approx(0.2)
