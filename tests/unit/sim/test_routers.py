"""What each routing policy promises, on loads where it must show."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.controls import Fail, Failure
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.pools import ROUTERS, length_pools
from turbo_lab.sim.simulate import simulate
from turbo_lab.workload.trace_reader import TraceFile
from turbo_lab.workload.trace_request import TraceRequest

MOONCAKE = Path("../shared/traces/mooncake_conversation_trace.jsonl")
CALIBRATION = Calibration(
    name="test", source="invented", fixed_s=0.01, prefill_token_s=1e-4, prefill_context_s=0.0,
    decode_sequence_s=1e-3, context_token_s=1e-6, request_s=0.0, blocks=2000, block_tokens=16,
    max_batched_tokens=512, max_sequences=8,
)  # fmt: skip


def skewed(count=600, *, rate_per_s=18.0):
    """Poisson arrivals; one prompt in ten is long; priorities and sessions at random."""
    draw, now, rows = random.Random(5), 0.0, []
    for _ in range(count):
        now += draw.expovariate(rate_per_s)
        tokens = 4000 if draw.random() < 0.1 else 100
        rows.append(TraceRequest(now, tokens, 10, priority=draw.randrange(2),
                                 session=f"s{draw.randrange(30)}"))  # fmt: skip
    return rows


def spread(trace, router, **options):
    """Replica of every request, and the result."""
    found = simulate(trace, Engine(CALIBRATION), replicas=4, router=router, keep_timelines=True,
                     **options)  # fmt: skip
    return [job.replica for job in sorted(found.jobs, key=lambda job: job.index)], found


def test_round_robin_takes_turns_and_random_is_even():
    places, _ = spread(skewed(), "round-robin")
    assert places[:8] == [0, 1, 2, 3, 0, 1, 2, 3]
    counts = Counter(spread(skewed(), "random")[0])
    assert all(110 < counts[i] < 190 for i in range(4))


def test_policies_that_look_at_the_load_have_shorter_tails():
    tails = {n: spread(skewed(), n)[1].metrics["ttft"].percentile(95) for n in ROUTERS}
    assert tails["least-requests"] < tails["power-of-two"] < tails["random"]
    assert tails["length-aware"] < tails["least-requests"]


def test_consistent_hash_keeps_sessions_together_and_a_failure_moves_only_its_own():
    trace = skewed()
    calm, _ = spread(trace, "consistent-hash")
    homes = {row.session: place for row, place in zip(trace, calm, strict=True)}
    assert [homes[row.session] for row in trace] == calm
    broken, _ = spread(trace, "consistent-hash", controls=[Fail([Failure(0.0, 2, 1e6)])])
    assert 2 not in broken
    assert all(a == b for a, b in zip(calm, broken, strict=True) if a != 2)


def test_pools_keep_their_kind_apart():
    trace = skewed()
    for router, kind in ((length_pools(longest_short=1000), lambda r: r.input_tokens <= 1000),
                         ("priority", lambda r: r.priority <= 0)):  # fmt: skip
        places, _ = spread(trace, router)
        pools = {(kind(row), place < 2) for row, place in zip(trace, places, strict=True)}
        assert pools == {(True, True), (False, False)}


def test_prefix_aware_routing_hits_more_than_round_robin_and_stays_balanced():
    draw, now, rows = random.Random(6), 0.0, []
    for index in range(400):
        now += draw.expovariate(12)
        family = draw.randrange(7)
        ids = (*range(100 * family, 100 * family + 20), 10_000 + index)
        rows.append(TraceRequest(now, 16 * 21, 8, ids, 16))
    blind, aware = (spread(rows, name) for name in ("round-robin", "prefix-aware"))
    assert aware[1].prefix_hit_rate > blind[1].prefix_hit_rate + 0.03
    counts = Counter(aware[0])  # Seven families on four replicas: one has 1/7, the others 2/7.
    assert len(counts) == 4 and max(counts.values()) < 0.45 * len(rows)


@pytest.mark.skipif(not MOONCAKE.exists(), reason="the Mooncake trace is not here")
def test_an_endless_cache_hits_what_the_mooncake_trace_allows():
    endless = replace(CALIBRATION, blocks=10**8, max_batched_tokens=10**6, prefill_token_s=1e-7)
    found = simulate(TraceFile(MOONCAKE), Engine(endless), keep_timelines=True)
    hits = sum(-(-job.hit_tokens // 512) for job in found.jobs)
    blocks = sum(len(job.request.block_ids) for job in found.jobs)
    assert hits / blocks == pytest.approx(0.366, abs=0.003)
