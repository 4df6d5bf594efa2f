"""The size of the KV pool as engines tell it themselves, for several settings at once.

An engine prints its pool before it serves anything, so a start is ended as soon as the line is
there. A start that is refused for lack of memory is a reading too: the refusal names the need.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from turbo_lab.core.errors import EngineError, UnmeasuredError
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.vllm_server import KV_TOKENS_LINE, VllmServer

TIMEOUT_S = 300.0
_CONCURRENCY = re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x")
_REFUSED = re.compile(r"\(([\d.]+) GiB KV\s+cache is needed.*?available KV cache\s+memory", re.S)
_LONGEST = re.compile(r"estimated maximum model length is (\d+)")


def pool_case(
    args: VllmArgs, *, dtype: str, kv_cache_gib: float, max_model_len: int | None = None
) -> VllmArgs:
    """``args`` with another dtype and pool size, and perhaps a longest length that may be refused.

    With an explicit pool size the share of a GPU's memory is only a check at the start; it is
    lowered so that a card which another server fills does not fail that check.
    """
    changed = args.replace(dtype=dtype, kv_cache_gib=kv_cache_gib)
    if args.device == "gpu":
        changed = changed.replace(gpu_memory_utilization=0.05)
    if max_model_len is None:
        return changed
    allow = ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")  # else the model's own limit refuses first
    return changed.replace(max_model_len=max_model_len, env=(*args.env, allow))


def read_pools(
    cases: Mapping[str, VllmArgs], *, running: VllmServer | None = None, at_once: int | None = None
) -> dict[str, dict[str, Any]]:
    """Ask one engine per case for its pool; ``running`` answers for the case with its arguments.

    Args:
        cases: name to the arguments of ``vllm serve``.
        running: a server that is up already.
        at_once: starts side by side (each takes about a core and 1.5 GiB beside its pool); by
            default two on CPU, one on a GPU, where they would count each other's memory.

    Returns:
        Name to ``tokens``, ``max_concurrency``, ``seconds``, ``refused``, ``needed_gib``,
        ``longest_tokens`` and ``reason``; what an engine did not tell is None. ``running`` also
        tells ``blocks`` and ``block_tokens``.
    """
    plain = {name: _plain(args) for name, args in cases.items()}
    up = {} if running is None else {_plain(running.args): running}
    started: list[VllmServer] = []
    if at_once is None:
        at_once = 1 if any(args.device == "gpu" for args in cases.values()) else 2
    workers = ThreadPoolExecutor(max_workers=max(1, at_once))
    try:
        futures = {
            name: workers.submit(_ask, up[args])
            if args in up
            else workers.submit(_start, args, started)
            for name, args in plain.items()
        }
        return {name: future.result() for name, future in futures.items()}
    finally:
        workers.shutdown(wait=False, cancel_futures=True)
        for server in started:  # only an interrupted call still has one
            server.stop()


def told(readings: Mapping[str, Mapping[str, Any]] | None, name: str, key: str = "tokens") -> Any:
    """One number of one reading. Raises UnmeasuredError with the engine's reason for none."""
    reading = (readings or {}).get(name)
    if reading is None:
        raise UnmeasuredError(f"no engine was asked for {name}")
    if reading.get(key) is None:
        raise UnmeasuredError(reading.get("reason") or f"the engine did not tell {key}")
    return reading[key]


def _plain(args: VllmArgs) -> VllmArgs:
    """Arguments with the CPU's silent default spelled out, so that equal servers compare equal."""
    if args.device == "cpu" and args.kv_cache_gib is None:
        return args.replace(kv_cache_gib=1)
    return args


def _reading(**known: Any) -> dict[str, Any]:
    blank = dict.fromkeys(
        ("tokens", "max_concurrency", "blocks", "block_tokens", "seconds", "needed_gib",
         "longest_tokens", "reason")
    )  # fmt: skip
    return {**blank, "refused": False, **known}


def _ask(server: VllmServer) -> dict[str, Any]:
    config = server.cache_config()
    return _reading(
        tokens=server.kv_cache_tokens(),
        max_concurrency=_number(_CONCURRENCY, server.log.read_text(errors="replace")),
        blocks=int(config["num_gpu_blocks"]),
        block_tokens=int(config["block_size"]),
        seconds=server.load_s,
    )


def _start(args: VllmArgs, started: list[VllmServer]) -> dict[str, Any]:
    server = VllmServer(args)
    started.append(server)
    server.start()

    def log() -> str:
        return server.log.read_text(errors="replace")

    try:
        seconds = server.process.wait_for(
            lambda: KV_TOKENS_LINE.search(log()) is not None,
            timeout_s=TIMEOUT_S,
            what="vllm serve",
        )
    except EngineError as error:
        needed = _number(_REFUSED, log())
        return _reading(
            refused=needed is not None,
            needed_gib=needed,
            longest_tokens=_whole(_number(_LONGEST, log())),
            reason=_short(error) if needed is None else "the engine refused to start",
        )
    finally:
        server.stop()
    return _reading(
        tokens=server.kv_cache_tokens(),
        max_concurrency=_number(_CONCURRENCY, log()),
        seconds=round(seconds, 1),
    )


def _number(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    return float(match.group(1)) if match else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _short(error: EngineError) -> str:
    """First lines of an engine's failure; the log keeps the rest."""
    return " ".join(str(error).split())[:300]
