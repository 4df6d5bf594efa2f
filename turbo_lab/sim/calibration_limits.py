"""The limits of a live engine, from the engine itself: its blocks, its budget, its longest length.

vLLM tells its blocks on ``/metrics`` and its lengths on ``/v1/models``; the token budget and the
most sequences only in development mode (``VLLM_SERVER_DEV_MODE=1``) on ``/server_info``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.engines.base import http_get

CACHE_CONFIG = re.compile(r"^vllm:cache_config_info\{(.*)\}", re.M)
NULL_BLOCKS = 1  # vLLM keeps one block of the pool for padding; no request ever gets it


@dataclass(frozen=True)
class EngineLimits:
    """``blocks``: KV blocks that requests can have. Lengths in tokens.

    ``model``: name to ask for; ``weights``: what the server says it loaded, without its folder.
    """

    model: str
    blocks: int
    block_tokens: int
    max_batched_tokens: int
    max_sequences: int
    longest_tokens: int
    version: str | None = None
    weights: str | None = None


def engine_limits(
    base_url: str, *, max_batched_tokens: int | None = None, max_sequences: int | None = None
) -> EngineLimits:
    """Ask a server for its limits; what it does not tell must be given.

    Raises EngineError where it cannot be reached or shows no KV blocks, UsageError where a limit is
    neither told nor given.
    """
    root = base_url.rstrip("/").removesuffix("/v1")
    served = _served(root)
    cache = CACHE_CONFIG.search(_get(root, "/metrics"))
    if cache is None:
        raise EngineError(f"{root}/metrics has no vllm:cache_config_info: is it a vLLM server?")
    told = dict(re.findall(r'(\w+)="([^"]*)"', cache[1]))
    scheduler = _scheduler(root)
    return EngineLimits(
        model=served["id"],
        blocks=int(told["num_gpu_blocks"]) - NULL_BLOCKS,
        block_tokens=int(told["block_size"]),
        max_batched_tokens=_limit("max_batched_tokens", max_batched_tokens, scheduler,
                                  "max_num_batched_tokens"),
        max_sequences=_limit("max_sequences", max_sequences, scheduler, "max_num_seqs"),
        longest_tokens=int(served.get("max_model_len") or told["block_size"]),
        version=_version(root),
        weights=Path(served["root"]).name if served.get("root") else None,
    )  # fmt: skip


def _served(root: str) -> Mapping[str, Any]:
    """The first model of the server's list."""
    try:
        served = json.loads(_get(root, "/v1/models"))["data"][0]
        return {**served, "id": str(served["id"])}
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise EngineError(f"{root}/v1/models lists no model: is it a vLLM server?") from error


def _get(root: str, path: str) -> str:
    try:
        status, body = http_get(root, path)
    except OSError as error:
        raise EngineError(f"{root}{path} cannot be reached: {error}. Is the server up?") from error
    if status != 200:
        raise EngineError(f"{root}{path} answered {status}")
    return body.decode()


def _scheduler(root: str) -> Mapping[str, Any]:
    try:
        config = json.loads(_get(root, "/server_info?config_format=json")).get("vllm_config")
    except (EngineError, ValueError):
        return {}  # only servers in development mode tell
    return config.get("scheduler_config", {}) if isinstance(config, Mapping) else {}


def _version(root: str) -> str | None:
    try:
        return str(json.loads(_get(root, "/version"))["version"])
    except (EngineError, ValueError, KeyError):
        return None


def _limit(name: str, given: int | None, told: Mapping[str, Any], key: str) -> int:
    value = given if given is not None else told.get(key)
    if value is None:
        raise UsageError(
            f"{name} is unknown: the server does not tell {key} (it would with "
            "VLLM_SERVER_DEV_MODE=1). Give the value it was started with."
        )
    return int(value)
