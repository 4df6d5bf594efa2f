"""What a live vLLM server tells about single blocks: block tables, and blocks stored and removed.

The tables come from a connector inside the server (``turbo_lab.experiment.block_watch``), which
writes down every block id that the scheduler gives out. Stored and removed blocks are vLLM's own
KV events, as cache-aware routers read them.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core.direct import open_direct
from turbo_lab.core.errors import EngineError, RecordError, UnmeasuredError
from turbo_lab.engines import local_model
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.models.dtypes import canonical_dtype
from turbo_lab.records.journal import read_rows

SHARED_MEMORY = Path("/dev/shm")  # files there lie in the host's memory
NEEDED_BYTES = 2**30
REPLY_MS = 5000


@dataclass(frozen=True)
class KvWatch:
    """Where one watched server writes. ``tier``: the folder of offloaded blocks."""

    folder: Path
    tier: Path

    @classmethod
    def at(cls, owner: Path | str) -> KvWatch:
        """The watch that belongs to ``owner`` (the folder of a server pool, for example).

        The folder's name is short, because sockets lie in it. Offloaded blocks go to the host's
        shared memory where it has room for them, else beside.
        """
        name = f"turbo-lab-kv-{hashlib.sha256(str(owner).encode()).hexdigest()[:8]}"
        folder = Path(tempfile.gettempdir()) / name
        return cls(folder, (SHARED_MEMORY if _has_room(SHARED_MEMORY) else folder) / f"{name}-tier")

    @property
    def place(self) -> str:
        """Where offloaded blocks lie: in ``memory``, or on a ``disk``."""
        return "memory" if self.tier.parent == SHARED_MEMORY else "disk"

    def make(self) -> KvWatch:
        """Create the folders, for this user alone."""
        for path in (self.folder, self.tier):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self

    def args(self, args: VllmArgs, *, pool_blocks: int, block_tokens: int) -> VllmArgs:
        """``args`` with prefix caching, a pool of ``pool_blocks`` usable blocks, and the watch."""
        connector = {
            "kv_connector": "BlockWatch",
            "kv_connector_module_path": "turbo_lab.experiment.block_watch",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "watch_path": str(self.folder / "tables.jsonl"),
                "shared_storage_path": str(self.tier),
            },
        }
        events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"ipc://{self.folder}/events",
            "replay_endpoint": self._replay,
        }
        null_block = 1
        return beside_another(args).replace(
            enable_prefix_caching=True,
            block_size=block_tokens,
            max_num_batched_tokens=args.max_model_len,  # a prompt is never cut into chunks
            extra=(
                *args.extra,
                ("--num-gpu-blocks-override", str(pool_blocks + null_block)),
                ("--kv-transfer-config", json.dumps(connector, sort_keys=True)),
                ("--kv-events-config", json.dumps(events, sort_keys=True)),
                ("--enable-prompt-tokens-details", ""),
            ),
        )

    @property
    def _replay(self) -> str:
        return f"ipc://{self.folder}/replay"

    def tables(self, requests: Iterable[str]) -> dict[str, list[int]]:
        """Physical block ids of these requests, in the order of their tokens.

        ``requests`` are the ids that were sent (``X-Request-Id``). Raises UnmeasuredError for one
        that the server did not write down.
        """
        wanted = {name: [] for name in requests}
        for row in self._rows():
            for name in wanted:
                if f"-{name}-" in f"-{row['request']}-":
                    fresh = "blocks" in row or row.get("resumed")
                    wanted[name] = [] if fresh else wanted[name]
                    wanted[name] += row.get("blocks", row.get("grown", []))
        if missing := [name for name, table in wanted.items() if not table]:
            raise UnmeasuredError(f"the server wrote no block table for {', '.join(missing)}")
        return wanted

    def _rows(self) -> list[dict[str, Any]]:
        try:
            rows = read_rows(self.folder / "tables.jsonl")  # the server may be writing the last one
        except (OSError, RecordError) as error:
            raise UnmeasuredError(f"no block tables: {error}") from error
        if not rows:
            raise UnmeasuredError(f"no block tables: {self.folder}/tables.jsonl holds none")
        return rows

    def events(self, *, since: int = 0) -> list[dict[str, Any]]:
        """Batches of KV events from number ``since`` on, oldest first.

        Each has ``number`` and ``events`` (``type``, ``block_hashes`` and what vLLM adds). Raises
        UnmeasuredError when the server does not answer.
        """
        import msgspec
        import zmq

        batches = []
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            socket.connect(self._replay)
            socket.send_multipart((b"", since.to_bytes(8, "big")))
            while True:
                if not socket.poll(REPLY_MS):
                    raise UnmeasuredError("the server sends no KV events; does it still run?")
                *_, number, payload = socket.recv_multipart()
                if not payload:
                    return batches
                decoded = msgspec.msgpack.decode(payload)
                batches.append({"number": int.from_bytes(number, "big"), "events": decoded[1]})

    def clear_tier(self) -> int:
        """Delete all offloaded blocks. Returns the bytes that were freed."""
        size = folder_bytes(self.tier)
        for path in self.tier.iterdir() if self.tier.is_dir() else ():
            shutil.rmtree(path, ignore_errors=True)
        return size

    def remove(self) -> None:
        """Delete everything that the watch left on disk and in shared memory."""
        for path in (self.tier, self.folder):
            shutil.rmtree(path, ignore_errors=True)


def beside_another(args: VllmArgs) -> VllmArgs:
    """``args`` for a second engine on the same device: on a GPU, a pool of 1 GiB and no more.

    With an explicit pool the share of the card's memory is only a check at the start; it is lowered
    so that a card which another server fills does not fail that check.
    """
    if args.device != "gpu":
        return args
    return args.replace(kv_cache_gib=1, gpu_memory_utilization=0.05)


def pool_facts(server: VllmServer) -> dict[str, Any]:
    """What a server's pool is made of: ``config`` and ``dtype`` of the model, ``block`` (tokens),
    ``usable_blocks`` (vLLM's null block is not among them).
    """
    folder = local_model.snapshot_folder(server.args.model)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    told = server.cache_config()
    dtype = server.args.dtype if server.args.dtype != "auto" else config["dtype"]
    return {
        "config": config,
        "dtype": canonical_dtype(dtype),
        "block": int(told["block_size"]),
        "usable_blocks": int(told["num_gpu_blocks"]) - 1,
    }


def count_blocks(batches: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Blocks by type of event: ``{"BlockStored": 12, "BlockRemoved": 3}``."""
    counts: dict[str, int] = {}
    for batch in batches:
        for event in batch["events"]:
            kind = event["type"]
            counts[kind] = counts.get(kind, 0) + len(event.get("block_hashes") or ())
    return counts


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder; 0 when there is none."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def reset_prefix_cache(base_url: str, *, timeout_s: float = 30.0) -> None:
    """Make the server forget all cached blocks. Raises EngineError when it refuses."""
    import urllib.request

    request = urllib.request.Request(f"{base_url}/reset_prefix_cache", method="POST")
    try:
        with open_direct(request, timeout_s=timeout_s) as answer:
            done = json.loads(answer.read()).get("success")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise EngineError(f"POST /reset_prefix_cache: {error}") from error
    if not done:
        raise EngineError("the server did not reset its prefix cache: a request still runs")


def _has_room(folder: Path) -> bool:
    try:
        facts = os.statvfs(folder)
    except (OSError, AttributeError):
        return False
    return os.access(folder, os.W_OK) and facts.f_bavail * facts.f_frsize >= NEEDED_BYTES
