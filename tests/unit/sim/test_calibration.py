"""Calibration recovers the costs of an engine whose costs are known."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import EngineError, UnmeasuredError, UsageError
from turbo_lab.engines.mock_script import Script
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.estimate.points import PromptSource
from turbo_lab.metrics.timeline import Chunk, Timeline
from turbo_lab.sim.calibration import Calibration, prefill_pairs, read_calibration
from turbo_lab.sim.calibration_fit import fit_result, fit_steps
from turbo_lab.sim.calibration_limits import EngineLimits, engine_limits
from turbo_lab.sim.calibration_loads import calibration_loads
from turbo_lab.sim.calibration_run import calibrate, make_calibration, see_steps
from turbo_lab.sim.calibration_steps import step_samples
from turbo_lab.workload.request import Request

KNOWN = Calibration(
    name="known", source="a test", fixed_s=0.030, prefill_token_s=8e-4, prefill_context_s=4e-7,
    decode_sequence_s=0.004, context_token_s=6e-6, request_s=0.012, blocks=181, block_tokens=128,
    max_batched_tokens=2048, max_sequences=16,
    decode_knots=((0, 0), (4, 0.016), (16, 0.040)),
)  # fmt: skip
LIMITS = EngineLimits("known", 181, 128, 2048, 16, 2048)


class SteppingEngine:
    """A closed loop on an engine with known costs, without a clock; ``noise`` is relative."""

    def __init__(self, costs: Calibration, *, noise: float = 0.0, seed: int = 0) -> None:
        self.costs, self.noise, self.rng, self.now_s = costs, noise, random.Random(seed), 10.0

    def __call__(self, requests: Sequence[Request], users: int) -> list[Timeline]:
        self.now_s += 1.0
        queue = list(enumerate(requests))
        sent = {}
        marks: dict[int, list[float]] = {}
        running: list[int] = []
        for _ in range(min(users, len(queue))):
            sent[queue.pop(0)[0]] = self.now_s
        while waiting := [i for i in sent if i not in marks] or running:
            waiting = [i for i in sent if i not in marks]
            if not running:
                self.now_s = max(self.now_s, min(sent[i] + self.costs.request_s for i in waiting))
            new = [i for i in waiting if sent[i] + self.costs.request_s <= self.now_s + 1e-12]
            self.now_s += self._step(requests, running, new, marks)
            for order, i in enumerate([*running, *new]):
                marks.setdefault(i, []).append(self.now_s + order * 1e-4)
            running = [*running, *new]
            for i in [i for i in running if len(marks[i]) == requests[i].max_tokens]:
                running.remove(i)
                if queue:
                    sent[queue.pop(0)[0]] = marks[i][-1] + 5e-4
        return [self._timeline(requests[i], sent[i], marks[i]) for i in range(len(requests))]

    def _step(self, requests, running, new, marks) -> float:
        prompts = [len(requests[i].prompt) for i in new]
        exact = self.costs.step_s(
            sum(prompts),
            decode_sequences=len(running),
            context_tokens=sum(len(requests[i].prompt) + len(marks[i]) for i in running),
            pairs=sum(prefill_pairs(p) for p in prompts),
        )
        return exact * max(0.5, self.rng.gauss(1, self.noise))

    def _timeline(self, request: Request, sent_s: float, marks: list[float]) -> Timeline:
        chunks = tuple(Chunk(t, 1) for t in marks)
        return Timeline(
            sent_s=sent_s, connected_s=sent_s, status_code=200, chunks=chunks,
            finish_reason="length", saw_done=True, closed_s=marks[-1],
            usage={"prompt_tokens": len(request.prompt), "completion_tokens": len(marks)},
            labels=request.labels,
        )  # fmt: skip


def calibrated(noise: float, *, rounds: int = 2, seed: int = 0) -> Calibration:
    seen = see_steps(LIMITS, send=SteppingEngine(KNOWN, noise=noise, seed=seed), rounds=rounds)
    return make_calibration(seen, limits=LIMITS, name="found", source="a test")


def test_all_costs_are_recovered_without_noise():
    found = calibrated(0.0, rounds=1)
    for cost in ("fixed_s", "prefill_token_s", "prefill_context_s", "context_token_s", "request_s"):
        assert getattr(found, cost) == pytest.approx(getattr(KNOWN, cost), rel=0.05), cost
    for users in (1, 2, 4, 8, 16):
        assert found.decode_s(users) == pytest.approx(KNOWN.decode_s(users), rel=0.03)
    assert found.evidence["held_out"]["median"] < 0.01
    assert (found.blocks, found.max_batched_tokens) == (181, 2048)


@pytest.mark.parametrize("seed", range(3))
def test_steps_are_foretold_under_noise(seed):
    found = calibrated(0.15, seed=seed)
    for prompt, users, context in ((0, 1, 200), (0, 12, 3000), (256, 0, 0), (512, 6, 1200)):
        asked = {"decode_sequences": users, "context_tokens": context,
                 "pairs": prefill_pairs(prompt)}  # fmt: skip
        assert found.step_s(prompt, **asked) == pytest.approx(
            KNOWN.step_s(prompt, **asked), rel=0.1
        )
    told = found.evidence["held_out"]
    assert 0.02 < told["median"] < 0.25 and abs(told["total"]) < 0.1


@pytest.mark.parametrize("share", [0.05, 0.4])
def test_slow_minutes_do_not_bend_the_costs_and_are_told(share):
    seen = see_steps(LIMITS, send=SteppingEngine(KNOWN, noise=0.05), rounds=2)
    rng = random.Random(3)
    samples = [replace(s, seconds=s.seconds * (3 if rng.random() < share else 1))
               for s in seen.all_fit]  # fmt: skip
    costs = fit_steps(samples)
    for sample in seen.judge[:50]:
        exact = KNOWN.step_s(
            sample.prefill_tokens, decode_sequences=sample.decode_sequences,
            context_tokens=sample.context_tokens, pairs=sample.pairs,
        )  # fmt: skip
        assert costs.seconds(sample) == pytest.approx(exact, rel=0.12)
    assert costs.disturbed == pytest.approx(3 * share / (1 + 2 * share), abs=0.12)
    assert fit_result(costs, samples).calm_median < 0.1


def test_the_sum_of_the_calm_steps_is_kept():
    samples = see_steps(LIMITS, send=SteppingEngine(KNOWN, noise=0.1), rounds=1).all_fit
    busy = [s for s in samples if not s.alone]
    assert fit_result(fit_steps(samples), busy).total == pytest.approx(0, abs=0.02)


def test_steps_that_cannot_be_read_are_left_out():
    engine = SteppingEngine(KNOWN)
    load = next(
        iter(calibration_loads(LIMITS, prompts=PromptSource(vocab=32_000, longest=99), seed=1))
    )
    requests = [replace(r, max_tokens=6) for r in load.requests[:2]]
    together = engine(requests, 2)
    plain = step_samples(together)
    # The server joins two tokens of one stream: that step and the next are in doubt.
    first = together[0]
    joined = replace(first, chunks=(*first.chunks[:2], Chunk(first.chunks[3].t_s, 2),
                                    *first.chunks[4:]))  # fmt: skip
    fewer = step_samples([joined, together[1]])
    assert len(fewer) < len(plain)
    assert set(fewer) <= set(plain)


def test_a_failed_request_and_missing_counts_are_no_measurement():
    engine = SteppingEngine(KNOWN)
    requests = [Request([1, 2], max_tokens=4, endpoint="completions", labels={"input_tokens": 2})]
    (good,) = engine(requests, 1)
    with pytest.raises(UnmeasuredError, match="failed"):
        step_samples([replace(good, error="reset", finish_reason=None, saw_done=False)])
    uncounted = tuple(Chunk(c.t_s, None) for c in good.chunks)
    with pytest.raises(UnmeasuredError, match="no token counts"):
        step_samples([replace(good, chunks=uncounted)])


@pytest.mark.parametrize("drop", ["decode", "alone", "behind", "most"])
def test_a_fit_without_the_steps_it_needs_is_refused(drop):
    samples = see_steps(LIMITS, send=SteppingEngine(KNOWN), rounds=1).fit[0]
    kept = {
        "decode": [s for s in samples if s.prefill_tokens],
        "alone": [s for s in samples if not s.alone],
        "behind": [s for s in samples if s.alone or s.decode_sequences],
        "most": samples[:5],
    }[drop]
    with pytest.raises(UsageError, match="a fit needs"):
        fit_steps(kept)


def test_loads_fit_into_a_step_and_never_repeat_a_prompt():
    prompts = PromptSource(vocab=32_000, longest=2048)
    loads = [*calibration_loads(LIMITS, prompts=prompts, seed=0),
             *calibration_loads(LIMITS, prompts=prompts, seed=1)]  # fmt: skip
    assert [load.concurrency for load in loads[:7]] == [1, 2, 4, 8, 16, 12, 2]
    assert [load.judge for load in loads[:7]] == [False] * 5 + [True, False]
    for load in loads:
        sizes = [len(r.prompt) for r in load.requests]
        assert sum(sizes[: load.concurrency]) <= LIMITS.max_batched_tokens
        assert load.concurrency * (max(sizes) + 20) <= LIMITS.blocks * LIMITS.block_tokens
    assert max(len(r.prompt) for r in loads[4].requests) == 3 * 2048 // 16
    keys = [r.prompt_key() for load in loads for r in load.requests]
    assert len(keys) == len(set(keys))
    with pytest.raises(UsageError, match="do not fit"):
        list(calibration_loads(replace(LIMITS, blocks=2), prompts=prompts, seed=0))


COSTS = st.floats(0, 1, allow_nan=False)


@given(
    costs=st.tuples(st.floats(1e-4, 1), COSTS, COSTS, COSTS, COSTS, COSTS),
    steps=st.lists(st.tuples(st.floats(0.1, 9), st.floats(0, 3)), max_size=4),
)
def test_json_round_trip_and_monotonous_costs(costs, steps):
    knots, at, seconds = [(0.0, 0.0)], 0.0, 0.0
    for width, rise in steps:
        at, seconds = at + width, seconds + rise
        knots.append((at, seconds))
    made = Calibration(
        "c", "s", *costs, blocks=9, block_tokens=16, max_batched_tokens=64, max_sequences=12,
        decode_knots=tuple(knots) if steps else (),
    )  # fmt: skip
    assert Calibration.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    table = made.decode_table()
    assert len(table) == 13 and table[0] == 0
    assert all(a <= b + 1e-12 for a, b in pairwise(table))
    for knot, value in made.decode_knots:
        assert made.decode_s(knot) == pytest.approx(value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"fixed_s": -1.0}, "fixed_s is -1.0; allowed: 0 to 1,000,000"),
        ({"fixed_s": float("nan")}, "fixed_s is nan"),
        ({"fixed_s": 1e300}, "fixed_s is 1e\\+300; allowed: 0 to 1,000,000"),
        ({"decode_knots": [[0, 0], [4, 1e300]]}, "up to 1,000,000"),
        ({"fixed_s": "fast"}, "not a number"),
        ({"blocks": 0}, "blocks is 0"),
        ({"blocks": 1.5}, "whole number"),
        ({"decode_knots": [[0, 0], [4, 1], [2, 2]]}, "rise from knot to knot"),
        ({"decode_knots": [[1, 0], [4, 1]]}, "begin with"),
        ({"fixed_s": 0.0, "prefill_token_s": 0.0}, "no time"),
        ({"fixd_s": 1}, "Did you mean 'fixed_s'"),
    ],
)
def test_damaged_calibrations_are_refused(change, reason):
    with pytest.raises(UsageError, match=reason):
        Calibration.from_dict({**KNOWN.to_dict(), **change})


def test_calibrations_by_name_and_file(tmp_path):
    KNOWN.write(tmp_path / "known.json")
    assert read_calibration(tmp_path / "known.json") == KNOWN
    (tmp_path / "cut.json").write_text('{"name": ')
    for path, reason in ((tmp_path / "cut.json", "cannot be read"), ("no-such", "no calibration")):
        with pytest.raises(UsageError, match=reason):
            read_calibration(path)
    partly = {k: v for k, v in KNOWN.to_dict().items() if k != "blocks"}
    (tmp_path / "part.json").write_text(json.dumps(partly))
    with pytest.raises(UsageError, match="needs blocks"):
        read_calibration(tmp_path / "part.json")


MOCK_METRICS = {'vllm:cache_config_info{block_size="128",num_gpu_blocks="182"}': 1.0}


def test_limits_that_are_not_told_must_be_given():
    told = MockServer(Script(extra_metrics=MOCK_METRICS))
    with told, pytest.raises(UsageError, match="max_batched_tokens is unknown"):
        calibrate(told.base_url, name="x")
    silent = MockServer()
    with silent, pytest.raises(EngineError, match="cache_config_info"):
        engine_limits(silent.base_url)
    with pytest.raises(EngineError, match="cannot be reached"):
        engine_limits("http://127.0.0.1:9")


@settings(max_examples=20)
@given(st.integers(2, 16), st.integers(0, 10_000))
def test_every_step_of_a_crowd_is_seen_exactly(users, seed):
    """Without noise, every sample read from outside is a step that the engine really did."""
    rng = random.Random(seed)
    requests = [
        Request([1] * rng.randint(2, 120), max_tokens=rng.randint(2, 9), endpoint="completions")
        for _ in range(2 * users)
    ]
    engine = SteppingEngine(KNOWN)
    for sample in step_samples(engine(requests, users)):
        exact = engine.costs.step_s(
            sample.prefill_tokens, decode_sequences=sample.decode_sequences,
            context_tokens=sample.context_tokens, pairs=sample.pairs,
        )  # fmt: skip
        expected = exact + (KNOWN.request_s if sample.alone else 0)
        assert sample.seconds == pytest.approx(expected, abs=2.5e-3)
