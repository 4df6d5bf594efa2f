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
RUNNING = "vllm:num_requests_running"
INTERVAL_S = 0.1
TRIES = 3  # runs of the requests before the reading is given up


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
    is not counted. A reading counts only when the same page says that all these requests run. A
    busy machine may take no such reading; then the requests are sent again, ``TRIES`` times in
    all. Returns ``value``, ``usable_blocks`` and ``samples_taken``. Raises UnmeasuredError when a
    request failed or no reading counts.
    """
    usable = int(server.cache_config()["num_gpu_blocks"]) - 1
    seen = 0
    for _ in range(TRIES):
        rows = _rows_while_running(server, requests)
        pages = [row["engine"] for row in rows if USAGE in (row.get("engine") or {})]
        shares = [page[USAGE] for page in pages if page.get(RUNNING) == len(requests)]
        seen += len(pages)
        if shares:
            return {
                "value": round(max(shares) * usable),
                "usable_blocks": usable,
                "samples_taken": len(shares),
            }
    raise UnmeasuredError(_why_none(seen, requests))


def _why_none(pages: int, requests: Sequence[Request]) -> str:
    if not pages:
        return f"the engine's page has no {USAGE}"
    return (
        f"in {TRIES} tries none of {pages} readings fell into the time when all {len(requests)} "
        "requests ran: the machine is too busy, or the replies are too short. Close other "
        "programs or ask for longer replies."
    )


def _rows_while_running(server: VllmServer, requests: Sequence[Request]) -> list[dict[str, Any]]:
    """Samples of the engine's page beside one run of the requests."""
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
    return rows
