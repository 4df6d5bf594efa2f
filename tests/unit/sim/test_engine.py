"""The simulated engine against closed forms and against the rules of vLLM's scheduler."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turbo_lab.metrics.goodput import attainment
from turbo_lab.metrics.summary import summarize
from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.simulate import simulate
from turbo_lab.workload import arrivals
from turbo_lab.workload.trace_request import TraceRequest

CALIBRATION = Calibration(
    name="test", source="invented", fixed_s=0.01, prefill_token_s=1e-4, prefill_context_s=0.0,
    decode_sequence_s=1e-3, context_token_s=1e-6, request_s=0.0, blocks=100, block_tokens=4,
    max_batched_tokens=64, max_sequences=8,
)  # fmt: skip


def served(trace, engine=None, **options):
    """Jobs in the order of the trace, and the result."""
    found = simulate(trace, engine or Engine(CALIBRATION), keep_timelines=True, **options)
    return sorted(found.jobs, key=lambda job: job.index), found


def test_one_request_takes_the_sum_of_its_steps():
    _, found = served([TraceRequest(0.0, 10, 5)])
    (line,) = found.timelines()
    prefill = 0.01 + 10 * 1e-4
    steps = [0.01 + 1e-3 + (10 + i) * 1e-6 for i in range(4)]
    assert line.chunks[0].t_s == pytest.approx(prefill, abs=1e-15)
    assert found.duration_s == pytest.approx(prefill + sum(steps), abs=1e-14)
    exact = simulate([TraceRequest(0.0, 10, 5)], Engine(CALIBRATION, jump=False))
    assert exact.duration_s == found.duration_s


def test_mean_wait_at_batch_1_is_that_of_the_queue_m_d_1():
    service, rho, count = 0.02, 0.6, 60_000
    engine = Engine(replace(CALIBRATION, max_sequences=1, fixed_s=0.01, prefill_token_s=1e-4))
    times = arrivals.gamma(count, rate_per_s=rho / service, shape=1.0, seed=8)
    trace = [TraceRequest(t, 100, 1) for t in times]
    engine = replace(engine, calibration=replace(engine.calibration, max_batched_tokens=100))
    found = simulate(trace, engine)
    free, waits = 0.0, []
    for time_s in times:  # Lindley: what these very arrivals must wait.
        waits.append(max(0.0, free - time_s))
        free = time_s + waits[-1] + service
    mean = found.metrics["ttft"].mean - service
    assert mean == pytest.approx(sum(waits) / count, rel=1e-9)
    assert mean == pytest.approx(rho * service / (2 * (1 - rho)), rel=0.02)


def test_a_long_prompt_is_cut_into_chunks_beside_decoding():
    trace = [TraceRequest(0.0, 4, 40), TraceRequest(0.001, 200, 1)]
    jobs, found = served(trace)
    # Step 1: prompt of 4. Then 63 prompt tokens beside one decoding sequence: 63+63+63+11.
    chunks = [63, 63, 63, 11]
    length = sum(0.01 + 1e-3 + (4 + i) * 1e-6 + n * 1e-4 for i, n in enumerate(chunks))
    assert jobs[1].first_fs / 1e15 == pytest.approx(0.01 + 4e-4 + length, abs=1e-14)
    assert found.preemptions == 0


def test_a_shared_prefix_is_computed_once_and_leaves_the_last_token():
    ids = tuple(range(10))
    jobs, found = served([TraceRequest(0.0, 40, 1, ids, 4), TraceRequest(5.0, 40, 1, ids, 4)])
    assert [job.hit_tokens for job in jobs] == [0, 36]
    assert found.prefix_hit_rate == 36 / 80
    off = simulate([TraceRequest(0.0, 40, 1, ids, 4)] * 2, Engine(CALIBRATION, prefix_cache=False))
    assert off.prefix_hit_rate == 0


@pytest.mark.parametrize("size", [2, 4, 8])
def test_trace_blocks_smaller_or_larger_than_the_engines_hit_whole_blocks(size):
    count = 40 // size
    first = TraceRequest(0.0, 40, 1, tuple(range(count)), size)
    second = TraceRequest(5.0, 40, 1, (*range(24 // size), *range(100, 100 + 16 // size)), size)
    jobs, _ = served([first, second])
    assert jobs[1].hit_tokens == 24


def test_the_least_recently_used_block_goes_first_and_the_tail_before_the_beginning():
    small = Engine(replace(CALIBRATION, blocks=20))
    a, b = tuple(range(10)), tuple(range(100, 110))
    fill = tuple(range(200, 204))
    trace = [TraceRequest(0.0, 40, 1, a, 4), TraceRequest(1.0, 40, 1, b, 4),
             TraceRequest(2.0, 16, 1, fill, 4), TraceRequest(3.0, 40, 1, a, 4)]  # fmt: skip
    jobs, _ = served(trace, small)
    assert jobs[3].hit_tokens == 24  # The last four blocks of a made room.


def test_without_a_block_the_last_admitted_starts_again_and_ends_all_the_same():
    tight = Engine(replace(CALIBRATION, blocks=12))
    trace = [TraceRequest(0.0, 20, 20), TraceRequest(0.0, 20, 20)]
    jobs, found = served(trace, tight)
    assert found.preemptions == 1 and [job.preemptions for job in jobs] == [0, 1]
    lines = found.timelines()
    assert all(sum(c.tokens for c in line.events()) == 20 for line in lines)
    assert jobs[1].last_fs > jobs[0].last_fs


def test_by_priority_the_least_important_is_preempted():
    tight = Engine(replace(CALIBRATION, blocks=12), policy="priority")
    trace = [TraceRequest(0.0, 20, 20, priority=5), TraceRequest(0.0, 20, 20, priority=0)]
    jobs, _ = served(trace, tight)
    assert [job.preemptions for job in jobs] == [1, 0]


def test_fair_queueing_serves_a_small_tenant_before_a_flood():
    flood = [TraceRequest(0.0, 60, 10, tenant="big") for _ in range(40)]
    trace = [*flood, TraceRequest(0.001, 60, 10, tenant="small")]
    one = replace(CALIBRATION, max_sequences=1)
    last, fair = (served(trace, Engine(one, policy=p))[0][-1] for p in ("fcfs", "fair"))
    assert fair.first_fs < last.first_fs / 10


def test_streamed_metrics_are_those_of_the_timelines():
    trace = [TraceRequest(0.05 * i, 10 + 7 * i % 50, 1 + i % 9) for i in range(60)]
    slo = {"ttft": 0.0135, "tpot": 0.013}
    _, found = served(trace, slo=slo)
    lines = found.timelines()
    summary, met = summarize(lines), attainment(lines, slo=slo)
    for name in ("ttft", "tpot", "e2e"):
        for p in (50, 90, 99):
            expected = summary[f"{name}_s"].percentile(p)
            assert found.metrics[name].percentile(p) == pytest.approx(expected, rel=1e-9)
    assert 0 < met.share < 1 and found.slo_attainment == met.share
    assert found.throughput_tok_s == pytest.approx(summary["output_rate_tok_s"].value)


def test_sketched_percentiles_are_within_their_error():
    trace = [TraceRequest(0.03 * i, 10 + 7 * i % 50, 1 + i % 9) for i in range(500)]
    exact = simulate(trace, Engine(CALIBRATION))
    rough = simulate(trace, Engine(CALIBRATION), exact=False)
    for name in ("ttft", "tpot", "e2e"):
        values = exact.metrics[name].values()
        for p in (50, 90, 99):
            rank = int(p / 100 * (len(values) - 1))
            assert rough.metrics[name].percentile(p) == pytest.approx(values[rank], rel=0.006)
