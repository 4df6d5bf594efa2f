"""Drafts, prefill and decode pools, migration, failures and autoscaling."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.sim.audit import audit
from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.controls import Autoscale, Fail, Failure
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.simulate import simulate
from turbo_lab.sim.speculative_decoders import Speculation
from turbo_lab.sim.transfer import Disaggregate, KvLink, Migrate
from turbo_lab.workload.trace_request import TraceRequest

CALIBRATION = Calibration(
    name="test", source="invented", fixed_s=0.01, prefill_token_s=1e-4, prefill_context_s=0.0,
    decode_sequence_s=1e-3, context_token_s=1e-6, request_s=0.001, blocks=60, block_tokens=4,
    max_batched_tokens=64, max_sequences=4,
)  # fmt: skip
LINK = KvLink.of(1e6, token_bytes=1000, latency_s=0.002)


def chat(count, *, gap_s=0.02, output=20):
    """Requests of which two thirds share a prefix."""
    ids = [(*range(4), 100 + i, 200 + i) if i % 3 else () for i in range(count)]
    return [TraceRequest(gap_s * i, 24, output, k, 4 if k else 0) for i, k in enumerate(ids)]


CONTROLS = {
    "plain": (),
    "disaggregated": (Disaggregate(decode=2, link=LINK),),
    "migrating": (Migrate(LINK, every_s=0.05, spread=1),),
    "failing": (Fail([Failure(0.1, 0, 0.3), Failure(0.2, 1, 0.0)]),),
    "autoscaled": (Autoscale(target=2, least=1, most=4, every_s=0.05, startup_s=0.1),),
    "failing decoders": (Disaggregate(decode=2, link=LINK),
                         Fail([Failure(0.1, 2, 0.3), Failure(0.11, 0, 0.3)])),
    "failing migration": (Migrate(LINK, every_s=0.03, spread=1), Fail([Failure(0.2, 0, 0.2)])),
}  # fmt: skip


@pytest.mark.parametrize("name", [*CONTROLS])
@given(
    st.integers(1, 40), st.sampled_from([0.0, 0.004, 0.03]), st.integers(1, 60),
    st.sampled_from([None, Speculation((0.8, 0.5, 0.2))]), st.booleans(), st.integers(40, 90),
)  # fmt: skip
@settings(max_examples=12, deadline=None,
          phases=(Phase.explicit, Phase.reuse, Phase.generate))  # fmt: skip
def test_laws_hold_under_every_control(name, count, gap_s, output, drafts, jump, blocks):
    engine = Engine(replace(CALIBRATION, blocks=blocks), speculation=drafts, jump=jump)
    trace = chat(count, gap_s=gap_s, output=output)
    times = []

    def watch(fleet):
        audit(fleet)
        times.append(fleet.now_fs)

    router = "random" if "migr" in name else "least-requests"
    found = simulate(trace, engine, replicas=2, router=router, controls=CONTROLS[name],
                     watch=watch, keep_timelines=True)  # fmt: skip
    assert found.completed == count and times == sorted(times)
    for line in found.timelines():
        line.validate()
        assert sum(c.tokens for c in line.events()) == output
    assert found.replica_s > 0 and found.busy_s <= found.replica_s * 4


def test_accepted_drafts_shorten_a_reply_by_their_mean_count():
    drafts = Speculation((0.8, 0.5, 0.2))
    free = replace(CALIBRATION, decode_sequence_s=0.0, context_token_s=0.0, blocks=10_000)
    trace = [TraceRequest(0.0, 10, 4001)]
    plain, fast = (simulate(trace, Engine(free, speculation=s)) for s in (None, drafts))
    gain = plain.metrics["tpot"].mean / fast.metrics["tpot"].mean
    assert gain == pytest.approx(drafts.tokens_per_step, rel=0.03)
    none = simulate(trace, Engine(free, speculation=Speculation((0.0, 0.0))))
    assert none.metrics["tpot"].mean == pytest.approx(plain.metrics["tpot"].mean)


def test_verifying_drafts_costs_what_so_many_sequences_cost():
    trace = [TraceRequest(0.0, 10, 101)]
    none = simulate(trace, Engine(CALIBRATION, speculation=Speculation((0.0, 0.0), draft_s=0.004)))
    assert none.metrics["tpot"].mean == pytest.approx(0.01 + 3e-3 + 0.004 + 59.5e-6)


def test_a_handed_over_request_waits_for_the_link_and_decodes_elsewhere():
    trace = [TraceRequest(0.0, 40, 3)]
    split = (Disaggregate(decode=1, link=LINK),)
    found = simulate(trace, Engine(CALIBRATION), controls=split, keep_timelines=True)
    (job,) = found.jobs
    prefill, link_s = 0.001 + 0.01 + 40e-4, 0.002 + 40 * 1000 / 1e6
    steps = [0.011 + 40e-6, 0.011 + 41e-6]
    assert job.first_fs / 1e15 == pytest.approx(prefill, abs=1e-12)
    assert job.last_fs / 1e15 == pytest.approx(prefill + link_s + sum(steps), abs=1e-12)
    assert job.replica == 1


def test_a_failure_sends_requests_again_and_empties_the_cache():
    ids = tuple(range(10))
    trace = [TraceRequest(0.0, 40, 30, ids, 4), TraceRequest(5.0, 40, 1, ids, 4)]
    calm, broken = (
        simulate(trace, Engine(CALIBRATION), controls=c, keep_timelines=True)
        for c in ((), (Fail([Failure(0.1, 0, 0.5)]),))
    )
    first = broken.timelines()[0]
    assert broken.restarts == 1 and [a.error for a in first.attempts] == ["replica failed", None]
    assert broken.jobs[0].last_fs == calm.jobs[0].last_fs + 10**15 * 6 // 10 - 10**12
    again = (Fail([Failure(2.0, 0, 0.1)]),)
    assert simulate(trace, Engine(CALIBRATION), controls=again).hit_tokens == 0
    assert calm.hit_tokens == 36


def test_migration_shortens_the_queue_of_a_poor_router():
    trace = chat(60, gap_s=0.005)
    poor = {"replicas": 3, "router": "consistent-hash", "seed": 3}
    stuck = simulate(trace, Engine(CALIBRATION), **poor)
    moved = simulate(trace, Engine(CALIBRATION), controls=(Migrate(LINK, every_s=0.02),), **poor)
    assert moved.migrations > 0
    assert moved.metrics["e2e"].percentile(90) < stuck.metrics["e2e"].percentile(90)


def test_a_request_that_moved_on_is_not_ended_by_the_replica_it_left():
    trace = chat(400, gap_s=0.006, output=35)
    found = simulate(trace, Engine(CALIBRATION), replicas=4, router="random", watch=audit,
                     controls=(Migrate(LINK, every_s=0.01, spread=1),))  # fmt: skip
    assert found.completed == 400 and found.migrations > 100


def test_autoscaling_pays_for_less_than_the_most_and_waits_less_than_the_least():
    trace = [*chat(100, gap_s=0.01), TraceRequest(20.0, 24, 20)]
    scale = (Autoscale(target=3, least=1, most=4, every_s=0.1, startup_s=0.2),)
    one, scaled, four = (
        simulate(trace, Engine(CALIBRATION), replicas=n, router="least-requests", controls=c)
        for n, c in ((1, ()), (1, scale), (4, ()))
    )
    waits = [r.metrics["ttft"].percentile(90) for r in (four, scaled, one)]
    assert waits == sorted(waits)
    assert one.replica_s < scaled.replica_s < four.replica_s / 2


def test_a_dead_replica_is_paid_for_beside_the_one_that_autoscaling_starts_in_its_place():
    trace = [TraceRequest(0.0, 24, 1), TraceRequest(8.0, 24, 1)]
    scale = Autoscale(target=9, least=1, most=1, every_s=0.1, startup_s=0.2)
    dead = Fail([Failure(1.0, 0, 5.0)])
    calm, failed = (
        simulate(trace, Engine(CALIBRATION), controls=c).replica_s
        for c in ((scale,), (scale, dead))
    )
    assert failed == pytest.approx(calm + 5.0, abs=0.25)  # the second one is up while it is dead


@pytest.mark.parametrize("wrong", [
    lambda: Speculation((0.2, 0.5)), lambda: KvLink.of(0, token_bytes=1),
    lambda: simulate(chat(2), Engine(CALIBRATION), controls=[Fail([Failure(0, 9, 1)])]),
    lambda: simulate(chat(2), Engine(CALIBRATION), controls=[Autoscale(target=0)]),
    lambda: simulate(chat(2), Engine(CALIBRATION), controls=[Disaggregate(0, LINK)]),
    lambda: Engine(replace(CALIBRATION, max_batched_tokens=7), speculation=Speculation((0.5,))),
    lambda: simulate(chat(2), Engine(CALIBRATION), router="nearest"),
    lambda: Engine(CALIBRATION, policy="lifo"),
])  # fmt: skip
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(UsageError):
        wrong()
