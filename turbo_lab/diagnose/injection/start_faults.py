"""Faults that keep a server from starting. Each starts one of its own, which soon ends."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from turbo_lab.diagnose.injection.fault import Evidence, Fault
from turbo_lab.diagnose.injection.full_disk import small_disk_command
from turbo_lab.diagnose.injection.ward import LONGEST_TOKENS, Ward
from turbo_lab.engines import local_model
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.models.spec import ModelSpec, from_hf_config

WAIT_S = 240.0
FEW_BLOCKS = 4
Change = Callable[[Ward], VllmArgs]
Prepare = Callable[[VllmServer], AbstractContextManager[object]]


@contextmanager
def _nothing(server: VllmServer) -> Iterator[None]:
    yield


@contextmanager
def failed_start(
    ward: Ward,
    on: bool,
    *,
    name: str,
    cause: str,
    change: Change,
    prepare: Prepare = _nothing,
) -> Iterator[Evidence]:
    """Start a server with the fault until it ends or its log names the cause; then stop it.

    Off: the log of the patient's own, healthy start.
    """
    if not on:
        yield Evidence(ward.start_log)
        return
    server = VllmServer(change(ward), folder=ward.folder / f"start-{name}-{time.monotonic_ns()}")
    with prepare(server):
        server.start()
        try:
            yield Evidence(_log_until(server, cause))
        finally:
            server.stop()


def _log_until(server: VllmServer, cause: str) -> bytes:
    """The log, as soon as the server is gone or the doctor names the cause in it."""
    deadline = time.monotonic() + WAIT_S
    while True:
        gone = not server.alive()
        evidence = Evidence(server.log.read_bytes())
        named = {finding.cause for finding in evidence.findings("log")}
        if gone or cause in named or time.monotonic() > deadline:
            return evidence.log
        time.sleep(0.5)


def _spec(ward: Ward) -> ModelSpec:
    folder = local_model.snapshot_folder(ward.base.model)
    return from_hf_config(json.loads((folder / "config.json").read_text()))


def _few_blocks(ward: Ward) -> VllmArgs:
    """A pool of fewer blocks than one request of the longest length needs."""
    blocks = ("--num-gpu-blocks-override", str(FEW_BLOCKS))
    return ward.base.replace(
        max_model_len=LONGEST_TOKENS, block_size=32, extra=(*ward.base.extra, blocks)
    )


def _odd_parallel(ward: Ward) -> VllmArgs:
    """The smallest number of ranks that does not divide the heads."""
    heads = _spec(ward).query_heads
    ranks = next(n for n in range(2, heads + 2) if heads % n)
    return ward.base.replace(tensor_parallel_size=ranks)


def _long_context(ward: Ward) -> VllmArgs:
    """A longest sequence beyond the positions that the model was trained for."""
    folder = local_model.snapshot_folder(ward.base.model)
    trained = json.loads((folder / "config.json").read_text())["max_position_embeddings"]
    return ward.base.replace(max_model_len=4 * trained)


@contextmanager
def taken_port(server: VllmServer) -> Iterator[None]:
    """Somebody else listens on the server's port."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", server.port))
        other.listen()
        yield


@contextmanager
def small_folder(server: VllmServer, *, where: str, size_bytes: int, full: bool) -> Iterator[None]:
    """The server sees a small (or full) disk at ``where``; nobody else does.

    ``where`` is a folder of the system, or ``cache`` for the server's own cache folder.
    """
    folder = Path(where)
    if where == "cache":
        folder = server.process.folder.with_name(server.process.folder.name + "-cache")
        folder.mkdir(parents=True, exist_ok=True)
        server.process.env = {**server.process.env, "VLLM_CACHE_ROOT": str(folder)}
    server.process.command = small_disk_command(
        server.process.command, folder=folder, size_bytes=size_bytes, full=full
    )
    try:
        yield
    finally:
        if where == "cache":
            with contextlib.suppress(OSError):
                shutil.rmtree(folder)


def _unchanged(ward: Ward) -> VllmArgs:
    return ward.base.replace(max_model_len=LONGEST_TOKENS)


def _fault(
    name: str,
    changed: str,
    cause: str,
    change: Change,
    prepare: Prepare = _nothing,
    *,
    symptom: str = "the server does not start",
) -> Fault:
    inject = functools.partial(
        failed_start, name=name.replace(" ", "-"), cause=cause, change=change, prepare=prepare
    )
    return Fault(name, changed, symptom, (cause,), "start", inject,
                 ("engine_died",))  # fmt: skip


START_FAULTS = (
    _fault("KV pool below one request", f"{FEW_BLOCKS} blocks for the KV cache",
           "kv_cache_too_small", _few_blocks),
    _fault("wrong parallel setting", "as many ranks as do not divide the heads",
           "wrong_parallel_setting", _odd_parallel),
    _fault("context too long", "--max-model-len beyond the trained positions",
           "context_longer_than_model", _long_context),
    _fault("port in use", "the port: another process listens on it", "port_in_use", _unchanged,
           taken_port),
    _fault("full disk", "the cache folder: a disk without space", "disk_full", _unchanged,
           functools.partial(small_folder, where="cache", size_bytes=64 * 1024, full=True),
           symptom="it starts, slower each time"),
    _fault("small shared memory", "/dev/shm: one MiB, as in a container",
           "shared_memory_too_small", _unchanged,
           functools.partial(small_folder, where="/dev/shm", size_bytes=1 << 20, full=False)),
)  # fmt: skip
