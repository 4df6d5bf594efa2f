"""The simulated scheduler against vLLM's own: the same requests, step by step, on no model at all.

Every step takes one second in the simulator, so times are step numbers. First and last token,
cached prompt tokens and preemptions of every request must be equal.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.simulate import simulate
from turbo_lab.workload.trace_request import TraceRequest

pytestmark = [pytest.mark.engine, pytest.mark.slow]
pytest.importorskip("vllm", reason="needs the cpu environment")

BLOCK = 16


@dataclass
class Seen:
    """Step of the first and last token, cached prompt tokens, preemptions, by request."""

    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    hits: dict[int, int] = field(default_factory=dict)
    preempted: Counter[int] = field(default_factory=Counter)


@pytest.fixture(scope="module")
def config() -> Any:
    """vLLM's whole configuration for the bundled model's config.json; no weights are read."""
    from turbo_lab.engines import local_model, vllm_cli

    vllm_cli.answer_for_vllm()
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import init_none_hash

    init_none_hash(get_hash_fn_by_name("sha256"))
    return EngineArgs(
        model=str(local_model.resolve_model()), max_model_len=2048, block_size=BLOCK,
        enable_prefix_caching=True, async_scheduling=False, enforce_eager=True, dtype="float32",
    ).create_engine_config()  # fmt: skip


def scheduler(config: Any, *, blocks: int, budget: int, sequences: int, policy: str) -> Any:
    """vLLM's scheduler over a pool of one attention group."""
    import torch
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    limits = config.scheduler_config
    limits.max_num_seqs, limits.max_num_batched_tokens = sequences, budget
    limits.policy = policy
    config.cache_config.num_gpu_blocks = blocks + 1  # One of them is for padding.
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    pool = KVCacheConfig(
        num_blocks=blocks + 1, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["l"], spec)]
    )
    return Scheduler(
        config, pool, StructuredOutputManager(config), block_size=BLOCK, hash_block_size=BLOCK
    )


def prompt_of(row: TraceRequest, index: int) -> list[int]:
    """Tokens whose blocks are equal where the ids are."""
    seeds = row.block_ids or (10**9 + index,)
    size = row.block_tokens or row.input_tokens
    draws = [random.Random(seed) for seed in seeds]
    return [draw.randrange(100, 40_000) for draw in draws for _ in range(size)][: row.input_tokens]


def run_vllm(trace: list[TraceRequest], sched: Any) -> Seen:
    """Step vLLM's scheduler; the model says a token that no other request has."""
    from vllm import SamplingParams
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request

    hasher = get_request_block_hasher(BLOCK, get_hash_fn_by_name("sha256"))
    seen, step, sent = Seen(), 0, 0
    while sent < len(trace) or sched.has_unfinished_requests():
        while sent < len(trace) and trace[sent].arrival_s <= step:
            row = trace[sent]
            wanted = SamplingParams(max_tokens=row.output_tokens, ignore_eos=True)
            sched.add_request(
                Request(str(sent), prompt_of(row, sent), wanted, None, arrival_time=float(sent),
                        priority=row.priority, block_hasher=hasher)
            )  # fmt: skip
            sent += 1
        out = sched.schedule()
        step += 1
        assert step < 20_000, "vLLM's scheduler does not come to an end"
        seen.preempted.update(int(name) for name in out.preempted_req_ids or ())
        for new in out.scheduled_new_reqs:
            seen.hits.setdefault(int(new.req_id), new.num_computed_tokens)
        names = list(out.num_scheduled_tokens)
        said = [_token(sched.requests[name]) for name in names]
        places = {name: place for place, name in enumerate(names)}
        answer = ModelRunnerOutput(req_ids=names, req_id_to_index=places, sampled_token_ids=said)
        for group in sched.update_from_output(out, answer).values():
            for output in group.outputs:
                if output.new_token_ids:
                    seen.first.setdefault(int(output.request_id), step)
                    seen.last[int(output.request_id)] = step
    return seen


def _token(request: Any) -> list[int]:
    """One token once all tokens that exist are computed, none before."""
    if request.num_computed_tokens < request.num_tokens:
        return []
    return [random.Random(f"{request.request_id} {request.num_tokens}").randrange(100, 40_000)]


def drawn(seed: int, *, families: int) -> list[TraceRequest]:
    """A first request that keeps the engine busy, then crowds; families of shared prefixes."""
    draw, now = random.Random(seed), 1
    rows = [TraceRequest(0, 5, 300)]
    for number in range(draw.randrange(20, 50)):
        now += draw.choice([0, 0, 0, 1, 1, 3, 10])
        tokens, family, common = (
            draw.randrange(1, 250),
            draw.randrange(families + 1),
            draw.randrange(12),
        )
        ids = tuple(
            1000 * family + place if place < common else 10**6 * (number + 1) + place
            for place in range(-(-tokens // BLOCK))
        )
        rows.append(
            TraceRequest(now, tokens, draw.randrange(1, 60), ids if family else (),
                         BLOCK if family else 0, priority=draw.randrange(3))
        )  # fmt: skip
    return rows


Row = tuple[float, float, int, int]


def both(
    trace: list[TraceRequest], config: Any, **limits: Any
) -> tuple[dict[int, Row], dict[int, Row]]:
    """First and last step, cached tokens and preemptions of each request: ours, vLLM's."""
    seen = run_vllm(trace, scheduler(config, **limits))
    engine = Engine(
        Calibration(
            name="steps", source="one second a step", fixed_s=1, prefill_token_s=0,
            prefill_context_s=0, decode_sequence_s=0, context_token_s=0, request_s=0,
            blocks=limits["blocks"], block_tokens=BLOCK, max_batched_tokens=limits["budget"],
            max_sequences=limits["sequences"],
        ),
        policy=limits["policy"],
    )  # fmt: skip
    jobs = simulate(trace, engine, keep_timelines=True).jobs or []
    ours = {
        job.index: (job.first_fs / 1e15, job.last_fs / 1e15, job.hit_tokens, job.preemptions)
        for job in jobs
    }
    theirs = {
        n: (float(seen.first[n]), float(seen.last[n]), seen.hits[n], seen.preempted[n])
        for n in seen.last
    }
    return ours, theirs


@pytest.mark.parametrize("seed", range(5))
def test_without_shared_prompts_every_step_is_that_of_vllm(config: Any, seed: int) -> None:
    draw = random.Random(f"limits {seed}")
    ours, theirs = both(
        drawn(seed, families=0), config, blocks=draw.randrange(32, 60),
        budget=draw.choice([32, 64, 256]), sequences=draw.choice([8, 16]), policy="fcfs",
    )  # fmt: skip
    assert ours == theirs
    assert sum(row[3] for row in theirs.values()) > 0, "nothing was preempted: too easy"


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("seed", range(2))
def test_with_blocks_enough_hits_and_steps_are_those_of_vllm(
    config: Any, seed: int, policy: str
) -> None:
    wide = {"blocks": 400, "budget": 64, "sequences": 4, "policy": policy}
    ours, theirs = both(drawn(seed, families=3), config, **wide)
    assert ours == theirs
    assert sum(row[2] for row in theirs.values()) > 0, "nothing was hit"


def test_where_shared_blocks_are_evicted_most_requests_agree(config: Any) -> None:
    """Second copies of a block are known only to vLLM (see ``sim.block_pool``)."""
    tight = {"blocks": 40, "budget": 64, "sequences": 8, "policy": "fcfs"}
    pairs = [both(drawn(seed, families=3), config, **tight) for seed in range(4)]
    ends = [(ours[n][1], theirs[n][1]) for ours, theirs in pairs for n in theirs]
    off = sorted(abs(a - b) / b for a, b in ends)
    print(f"ends off by: median {off[len(off) // 2]:.2%}, P90 {off[int(0.9 * len(off))]:.2%}")
    assert off[int(0.9 * len(off))] < 0.05
