"""The comparison of simulator and server, with another simulator in the server's place."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.simulate import simulate
from turbo_lab.sim.validation import BURST, Validation, judge, measure_loads
from turbo_lab.workload.trace_request import TraceRequest

KNOWN = Calibration(
    name="known", source="a test", fixed_s=0.030, prefill_token_s=8e-4, prefill_context_s=4e-7,
    decode_sequence_s=0.004, context_token_s=6e-6, request_s=0.012, blocks=181, block_tokens=128,
    max_batched_tokens=2048, max_sequences=16,
)  # fmt: skip


def server(costs: Calibration):
    def send(requests, schedule_s):
        trace = [
            TraceRequest(t, int(r.labels["input_tokens"]), int(r.labels["output_tokens"]))
            for r, t in zip(requests, schedule_s, strict=True)
        ]
        return simulate(trace, Engine(costs), keep_timelines=True).timelines()

    return send


def validate(calibration: Calibration, *, send, **options) -> Validation:
    return judge(calibration, measure_loads(send, model="m", **options))


def test_a_perfect_calibration_has_no_error():
    seen = []
    found = validate(KNOWN, send=server(KNOWN), on_run=lambda s, f: seen.append(s))
    assert [found.error(name) for name in ("ttft", "tpot", "throughput", "makespan")] == [0] * 4
    assert seen == [BURST, 0.5, 0.8, 1.0, 1.2] * 2
    assert found.noise("ttft") == 0 and found.met("tpot")
    burst = 40 / found.runs[0].simulated.makespan
    assert burst < found.saturation_req_s < 2.5 * burst  # it leaves out filling and draining
    assert json.loads(json.dumps(found.to_dict()))["aims"]["makespan"]["verdict"] == "met"
    assert "median error 0.0%" in str(found)


def test_a_server_that_is_slower_shows_as_the_error():
    costs = {n: getattr(KNOWN, n) * 1.25 for n in (
        "fixed_s", "prefill_token_s", "prefill_context_s", "decode_sequence_s", "context_token_s",
        "request_s")}  # fmt: skip
    found = validate(KNOWN, send=server(replace(KNOWN, **costs)), passes=1)
    assert found.error("makespan") == pytest.approx(0.2, abs=0.01)
    assert 0.15 < found.error("tpot") < 0.6  # crowds grow too, where a server is slower
    assert found.verdict("makespan") == found.verdict("tpot") == "not met"
    assert found.noise("tpot") is None and "unmeasured" in str(found)


def test_noise_is_the_difference_of_the_two_runs():
    calls = []

    def send(requests, schedule_s):
        calls.append(1)
        slower = replace(KNOWN, fixed_s=KNOWN.fixed_s * (1.5 if len(calls) > 3 else 1))
        return server(slower)(requests, schedule_s)

    found = validate(KNOWN, send=send, shares=(0.5, 0.8))
    assert found.noise("tpot") > 0.1
    assert found.verdict("tpot").startswith("cannot tell")
    assert found.error("tpot") == pytest.approx(found.noise("tpot") / 2, rel=0.6)


def test_failed_requests_are_no_measurement_and_bad_numbers_are_refused():
    def broken(requests, schedule_s):
        first, *rest = server(KNOWN)(requests, schedule_s)
        return [replace(first, status_code=500, error="HTTP 500", chunks=()), *rest]

    with pytest.raises(UnmeasuredError, match="requests failed"):
        validate(KNOWN, send=broken)
    with pytest.raises(UsageError, match="1 requests"):
        validate(KNOWN, send=server(KNOWN), requests=1)
    found = validate(KNOWN, send=server(KNOWN), shares=(0.8,), passes=1)
    with pytest.raises(UsageError, match=r"no run at"):
        replace(found, runs=found.runs[:0]).error("ttft")
