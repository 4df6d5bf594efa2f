"""Blocks kept outside the pool: how fast they could be copied, and whether the engine can do it."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from turbo_lab.core.errors import EngineError, UnmeasuredError, UsageError
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.kv_watch import beside_another
from turbo_lab.engines.vllm_server import VllmServer

REPEATS = 3
REASON = re.compile(r"^.*? ERROR .*?(?:Exception|Error): (.+)$", re.MULTILINE)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
EMPTY_WORDS = ("Engine core initialization failed", "failed core proc", "AsyncEngineDeadError")


def copy_rates(folder: Path, *, files: int, file_bytes: int) -> dict[str, float]:
    """Bytes/s of writing and of reading one prefix kept as ``files`` files, the best of three.

    Reading means file to array and array into a larger one, as a connector moves blocks into the
    pool. Raises UnmeasuredError when the folder cannot be used.
    """
    if files < 1 or file_bytes < 1:
        raise UsageError(f"{files} files of {file_bytes} bytes: both must be at least 1")
    data = np.random.default_rng(0).integers(0, 255, file_bytes, dtype=np.uint8)
    pool = np.zeros((files, file_bytes), dtype=np.uint8)
    paths = [folder / f"copy-{i}.bin" for i in range(files)]
    best = {"write_bytes_s": 0.0, "read_bytes_s": 0.0}
    try:
        for _ in range(REPEATS):
            start = time.perf_counter()
            for path in paths:
                data.tofile(path)
            middle = time.perf_counter()
            for row, path in enumerate(paths):
                pool[row] = np.fromfile(path, dtype=np.uint8)
            took = {"write_bytes_s": middle - start, "read_bytes_s": time.perf_counter() - middle}
            best = {k: max(best[k], pool.nbytes / seconds) for k, seconds in took.items()}
    except OSError as error:
        raise UnmeasuredError(f"{folder} cannot be used: {error}") from error
    finally:
        for path in paths:
            path.unlink(missing_ok=True)
    return best


def native_offload_args(args: VllmArgs, *, gib: int = 1) -> VllmArgs:
    """``args`` with vLLM's own offloading to host memory (``--kv-offloading-size``)."""
    return beside_another(args).replace(
        enable_prefix_caching=True, extra=(*args.extra, ("--kv-offloading-size", str(gib)))
    )


def ask_for_native_offload(args: VllmArgs, *, timeout_s: float = 300.0) -> dict[str, Any]:
    """Start the engine with its own offloading, and end it: ``works``, and what it ``said``.

    On the CPU backend of vLLM 0.32 it refuses. ``said`` is the engine's own sentence, None when
    it started.
    """
    server = VllmServer(native_offload_args(args))
    try:
        server.start()
        server.wait_ready(timeout_s)
    except EngineError as error:
        log = COLOUR.sub("", server.log.read_text(errors="replace"))
        return {"works": False, "said": _reason(log) or str(error).splitlines()[0]}
    finally:
        server.stop()
    return {"works": True, "said": None}


def ask_beside(args: VllmArgs, start: Callable[[], Any]) -> dict[str, Any]:
    """:func:`ask_for_native_offload` while ``start()`` starts another server.

    A start that fails is left to whoever asks for that server: there the reason is told.
    """
    with ThreadPoolExecutor(max_workers=1) as side:
        asked = side.submit(ask_for_native_offload, args)
        with contextlib.suppress(EngineError):
            start()
        return asked.result()


def _reason(log: str) -> str | None:
    """The first error in a log that is not only the report of another one."""
    found = (match.group(1).strip() for match in REASON.finditer(log))
    return next((text for text in found if not any(w in text for w in EMPTY_WORDS)), None)
