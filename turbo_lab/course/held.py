"""Blocks of the KV pool that running conversations hold, read from the engine while they run."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turbo_lab.client.load import run_closed_loop
from turbo_lab.client.sampler import Sampler
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.workload.prompts import token_id_prompts
from turbo_lab.workload.request import Request

USAGE = "vllm:kv_cache_usage_perc"
INTERVAL_S = 0.1


def conversations(
    users: int, *, prompt_tokens: int, reply_tokens: int, model: str, vocab_size: int, seed: int
) -> list[Request]:
    """Requests of exactly this length, no two with a common beginning."""
    prompts = token_id_prompts(users, tokens=prompt_tokens, vocab_size=vocab_size, seed=seed)
    return [
        Request(
            prompt, model=model, max_tokens=reply_tokens, endpoint="completions",
            extra={"ignore_eos": True},
        )
        for prompt in prompts
    ]  # fmt: skip


def held_blocks(server: VllmServer, requests: Sequence[Request]) -> dict[str, Any]:
    """Most blocks held while all requests run at once: the engine's own gauge times its blocks.

    The gauge is the share of blocks in use; one block (the null block) belongs to no request and
    is not counted. Returns ``value``, ``usable_blocks`` and ``samples_taken``. Raises
    UnmeasuredError when a request failed or the gauge was never read.
    """
    usable = int(server.cache_config()["num_gpu_blocks"]) - 1
    with tempfile.TemporaryDirectory() as folder:
        sampler = Sampler(
            Path(folder) / "samples.jsonl",
            metrics_url=f"{server.base_url}/metrics",
            interval_s=INTERVAL_S,
        ).start()
        try:
            runs = run_closed_loop(requests, base_url=server.base_url, concurrency=len(requests))
        finally:
            rows = sampler.stop()
    failed = [run.error for run in runs if run.error]
    if failed:
        raise UnmeasuredError(f"{len(failed)} of {len(runs)} requests failed: {failed[0]}")
    shares = [row["engine"][USAGE] for row in rows if USAGE in (row.get("engine") or {})]
    if not shares:
        raise UnmeasuredError(f"the engine's page has no {USAGE}")
    return {
        "value": round(max(shares) * usable),
        "usable_blocks": usable,
        "samples_taken": len(shares),
    }
