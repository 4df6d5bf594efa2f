"""The estimator against live engines: the pool, the refusal and the blocks held, to the token."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.core.units import GiB
from turbo_lab.course.held import conversations, held_blocks
from turbo_lab.engines import local_model
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.pool_reading import pool_case, read_pools
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.estimate.capacity import Capacity, capacity
from turbo_lab.estimate.deployment import Deployment
from turbo_lab.models.spec import ModelSpec, from_hf_config

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.alone]
CASES = [(dtype, gib) for dtype in ("float32", "bfloat16") for gib in (1, 2)]
TOO_LONG = 32_768


@pytest.fixture(scope="module")
def args() -> VllmArgs:
    pytest.importorskip("vllm", reason="needs the cpu environment")
    return VllmArgs.make(model=local_model.resolve_model(), dtype="float32")


@pytest.fixture(scope="module")
def spec(args: VllmArgs) -> ModelSpec:
    return from_hf_config(json.loads((Path(args.model) / "config.json").read_text()))


@pytest.fixture(scope="module")
def server(args: VllmArgs) -> Iterator[VllmServer]:
    with VllmServer(args) as running:
        yield running


@pytest.fixture(scope="module")
def readings(args: VllmArgs, server: VllmServer) -> dict[str, dict[str, Any]]:
    cases = {f"{d}-{g}": pool_case(args, dtype=d, kv_cache_gib=g) for d, g in CASES}
    cases["refused"] = pool_case(args, dtype="float32", kv_cache_gib=1, max_model_len=TOO_LONG)
    return read_pools(cases, running=server)


def estimated(spec: ModelSpec, dtype: str, gib: int, *, longest: int = 2048) -> Capacity:
    served = Deployment(platform="cpu", dtype=dtype)
    return capacity(spec, kv_cache_bytes=gib * GiB, max_len=longest, deployment=served)


@pytest.mark.parametrize(("dtype", "gib"), CASES)
def test_pool_equals_the_prediction_to_the_token(
    spec: ModelSpec, readings: dict[str, dict[str, Any]], dtype: str, gib: int
) -> None:
    told, ours = readings[f"{dtype}-{gib}"], estimated(spec, dtype, gib)
    assert told["tokens"] == ours.tokens
    assert told["max_concurrency"] == round(ours.max_concurrency, 2)


def test_running_server_says_the_same_in_blocks(
    spec: ModelSpec, readings: dict[str, dict[str, Any]]
) -> None:
    told, ours = readings["float32-1"], estimated(spec, "float32", 1)
    assert told["blocks"] == ours.blocks
    assert told["block_tokens"] == ours.pool.groups[0].block_tokens


def test_refusal_names_the_predicted_need_and_length(
    spec: ModelSpec, readings: dict[str, dict[str, Any]]
) -> None:
    told, ours = readings["refused"], estimated(spec, "float32", 1, longest=TOO_LONG)
    assert told["refused"] and not ours.fits
    assert told["needed_gib"] == round(ours.required_gib, 2)
    assert told["longest_tokens"] == ours.longest_len


@pytest.mark.parametrize("users", [1, 4])
def test_conversations_hold_whole_blocks(spec: ModelSpec, server: VllmServer, users: int) -> None:
    prompt, reply = 140, 60  # long enough to be seen on a busy machine
    requests = conversations(
        users, prompt_tokens=prompt, reply_tokens=reply, model=server.model_name,
        vocab_size=spec.vocab, seed=users,
    )  # fmt: skip
    held = held_blocks(server, requests)
    assert held["value"] == users * math.ceil((prompt + reply - 1) / 128)
    assert held["usable_blocks"] == estimated(spec, "float32", 1).blocks - 1
