"""Laws of the simulator, checked after every event on random traces and engines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.sim.audit import audit
from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.pools import ROUTERS
from turbo_lab.sim.simulate import simulate
from turbo_lab.sim.waiting import POLICIES
from turbo_lab.workload.trace_request import TraceRequest

# Shrinking a failing trace takes minutes on a busy machine; the seed in the message repeats it.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
CALIBRATION = Calibration(
    name="test", source="invented", fixed_s=0.01, prefill_token_s=1e-4, prefill_context_s=1e-8,
    decode_sequence_s=1e-3, context_token_s=1e-6, request_s=0.001, blocks=40, block_tokens=4,
    max_batched_tokens=16, max_sequences=4,
)  # fmt: skip


@st.composite
def traces(draw: st.DrawFn) -> list[TraceRequest]:
    """Requests close together, some of which share prefixes (chains of block ids)."""
    block = draw(st.sampled_from([2, 4, 8]))
    rows, now = [], 0.0
    for _ in range(draw(st.integers(1, 24))):
        now += draw(st.sampled_from([0.0, 0.0, 0.003, 0.02, 0.2]))
        tokens = draw(st.integers(1, 60))
        family = draw(st.integers(0, 3))
        common = draw(st.integers(0, 8))
        count = -(-tokens // block)
        unique = 1000 * (len(rows) + 1)
        ids = [100 * family + i if i < common else unique + i for i in range(count)]
        rows.append(
            TraceRequest(
                now, tokens, draw(st.integers(0, 40)), tuple(ids) if family else (),
                block if family else 0, draw(st.sampled_from("ab")), draw(st.integers(0, 2)),
                f"s{family}",
            )
        )  # fmt: skip
    return rows


ENGINES = st.builds(
    lambda blocks, budget, sequences, policy, cache: Engine(
        replace(
            CALIBRATION, blocks=blocks, max_batched_tokens=budget, max_sequences=sequences
        ),
        policy=policy, prefix_cache=cache,
    ),
    st.integers(27, 80), st.integers(8, 64), st.integers(1, 8),
    st.sampled_from([*POLICIES]), st.booleans(),
)  # fmt: skip


@given(traces(), ENGINES, st.integers(1, 3), st.sampled_from([*ROUTERS]))
@settings(max_examples=60, deadline=None, phases=PHASES)
def test_requests_tokens_and_blocks_are_conserved_at_every_event(trace, engine, replicas, router):
    times = []

    def watch(fleet):
        audit(fleet)
        times.append(fleet.now_fs)

    found = simulate(trace, engine, replicas=replicas, router=router, watch=watch, seed=1,
                     keep_timelines=True)  # fmt: skip
    assert found.completed == found.requests == len(trace)
    assert times == sorted(times)
    assert found.metrics.output_tokens == sum(max(r.output_tokens, 1) for r in trace)
    for line, request in zip(found.timelines(), trace, strict=True):
        line.validate()
        assert sum(c.tokens for c in line.events()) == max(request.output_tokens, 1)


@given(traces(), ENGINES)
@settings(max_examples=60, deadline=None, phases=PHASES)
def test_a_jumped_run_equals_a_stepped_run_exactly(trace, engine):
    jumped = simulate(trace, engine, keep_timelines=True)
    stepped = simulate(trace, replace(engine, jump=False), keep_timelines=True)
    pairs = zip(
        sorted(jumped.jobs, key=lambda j: j.index), sorted(stepped.jobs, key=lambda j: j.index),
        strict=True,
    )  # fmt: skip
    for a, b in pairs:
        assert (a.first_fs, a.last_fs) == (b.first_fs, b.last_fs)
        assert (a.preemptions, a.hit_tokens) == (b.preemptions, b.hit_tokens)


@given(traces(), ENGINES, st.sampled_from([*ROUTERS]), st.integers(0, 9))
@settings(max_examples=40, deadline=None, phases=PHASES)
def test_the_seed_determines_the_run(trace, engine, router, seed):
    runs = [
        simulate(trace, engine, replicas=3, router=router, seed=seed, keep_timelines=True)
        for _ in range(2)
    ]
    assert [t.to_dict() for t in runs[0].timelines()] == [t.to_dict() for t in runs[1].timelines()]


@given(traces(), ENGINES)
@settings(max_examples=40, deadline=None, phases=PHASES)
def test_equal_priorities_are_admitted_in_order_of_arrival(trace, engine):
    engine = replace(engine, policy="priority")
    order: list[tuple[int, int]] = []
    seen = set()

    def watch(fleet):
        for job in fleet.replicas[0].running:
            if job.index not in seen:
                seen.add(job.index)
                order.append((job.request.priority, job.index))

    simulate(trace, engine, watch=watch)
    for priority in {p for p, _ in order}:
        mine = [index for p, index in order if p == priority]
        assert mine == sorted(mine)


def test_an_unsorted_and_an_empty_trace_are_refused():
    engine = Engine(CALIBRATION)
    with pytest.raises(UsageError, match="no requests"):
        simulate([], engine)
    with pytest.raises(UsageError, match="request 1 is sent before the one before it"):
        simulate([TraceRequest(1.0, 4, 4), TraceRequest(0.5, 4, 4)], engine)


def test_a_request_that_can_never_fit_is_refused_and_the_rest_is_served():
    found = simulate([TraceRequest(0.0, 158, 4), TraceRequest(0.0, 157, 4)], Engine(CALIBRATION),
                     slo={"e2e": 1e6})  # fmt: skip
    assert (found.requests, found.completed, found.refused) == (2, 1, 1)
    assert found.slo_attainment == 0.5
