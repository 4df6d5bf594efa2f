"""The side-by-side comparison that notebook 14 shows."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.metrics.cost import PowerModel
from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.routing_study import (
    Policy,
    at_equal_service,
    at_rate,
    energy_rows,
    fewest_replicas,
    policy_rows,
    saturation_req_s,
    side_by_side,
    tenant_waits,
)
from turbo_lab.sim.simulate import simulate
from turbo_lab.workload.trace_request import TraceRequest

CALIBRATION = Calibration(
    name="test", source="invented", fixed_s=0.01, prefill_token_s=1e-4, prefill_context_s=0.0,
    decode_sequence_s=1e-3, context_token_s=0.0, request_s=0.0, blocks=1000, block_tokens=16,
    max_batched_tokens=512, max_sequences=1,
)  # fmt: skip
ENGINE = Engine(CALIBRATION)
SERVICE_S = 0.02  # 100 prompt tokens, one token of reply
LOAD = [TraceRequest(0.1 * i, 100, 1, tenant="ab"[i % 10 == 0]) for i in range(400)]


def test_saturation_is_one_over_the_service_time():
    assert saturation_req_s(LOAD, ENGINE) == pytest.approx(1 / SERVICE_S)


def test_a_stretched_load_has_the_asked_rate():
    found = at_rate(LOAD, 25.0)
    assert found[-1].arrival_s == pytest.approx(399 / 25)
    with pytest.raises(UsageError):
        at_rate(LOAD[:1], 25.0)
    for useless in ([LOAD[3]] * 4, LOAD[::-1]):  # all at once, and back in time
        with pytest.raises(UsageError, match="after the first"):
            at_rate(useless, 25.0)


def test_what_never_fits_has_no_saturation_and_takes_no_time():
    late = [TraceRequest(50.0, 10**6, 1)]
    with pytest.raises(UsageError, match="none of the 1 requests fits"):
        saturation_req_s(late, ENGINE)
    found = simulate(late, ENGINE)
    assert found.refused == 1 and found.duration_s == 0 and found.throughput_tok_s is None


def test_policies_are_compared_on_one_load():
    load = at_rate(LOAD, 180.0)
    runs = side_by_side(load, ENGINE, replicas=4, slo={"ttft": 0.03},
                        policies={n: Policy(n) for n in ("random", "round-robin")})  # fmt: skip
    rows = {row["policy"]: row for row in policy_rows(runs)}
    assert rows["round-robin"]["TTFT P99 [s]"] == pytest.approx(SERVICE_S)
    assert rows["random"]["TTFT P99 [s]"] > 3 * SERVICE_S
    assert rows["round-robin"]["SLO met"] == 1.0 > rows["random"]["SLO met"]


def test_the_fewest_replicas_are_the_load_over_the_capacity():
    load = at_rate(LOAD, 140.0)  # 2.8 replicas' worth
    options = {"router": "round-robin", "slo": {"ttft": 0.05}, "attain": 0.99}
    count, shares = fewest_replicas(load, ENGINE, most=5, **options)
    assert count == 3 and len(shares) == 3 and shares[1] < 0.5
    assert fewest_replicas(load, ENGINE, most=2, **options)[0] is None


def test_each_tenant_has_its_own_wait():
    fair = {"fair": Policy("random", own_queue="fair")}
    run = side_by_side(at_rate(LOAD, 10.0), ENGINE, replicas=1, policies=fair)["fair"]
    assert tenant_waits(run, percent=50) == pytest.approx({"a": SERVICE_S, "b": SERVICE_S})


def test_energy_at_equal_service_counts_idle_replicas():
    load = at_rate(LOAD, 25.0)
    runs = at_equal_service(
        load, ENGINE, replicas={"random": 4, "least-requests": 2, "round-robin": None},
        slo={"ttft": 1.0},
    )  # fmt: skip
    assert [*runs] == ["random", "least-requests"]
    rows = {row["router"]: row for row in energy_rows(
        runs, idle_shares=(0.0, 0.5, 1.0), power=PowerModel(100.0, 50.0)
    )}  # fmt: skip
    for row in rows.values():
        none, half, full = (row[f"energy, idle {p}%"] for p in (0, 50, 100))
        assert none == pytest.approx(SERVICE_S) and full == pytest.approx(row["replica-seconds"])
        assert half == pytest.approx((none + full) / 2)
        assert row["energy [J]"] == pytest.approx(100 * half)
    assert rows["random"]["energy [J]"] > 1.3 * rows["least-requests"]["energy [J]"]
    assert "energy [J]" not in next(energy_rows(runs, idle_shares=(0.2,)))
