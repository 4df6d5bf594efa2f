"""What the worker's half of the connector does: copy blocks out, fetch blocks in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np

from turbo_lab.engines.kv_connector.fetch import Fetched, Wanted, fetch
from turbo_lab.engines.kv_connector.journal import Note
from turbo_lab.engines.kv_connector.scheduling import Load, Save
from turbo_lab.engines.kv_connector.sender import KvSender
from turbo_lab.engines.kv_connector.store import Geometry, KvStore, Prefix


class Blocks(Protocol):
    """The engine's KV cache, block by block."""

    geometry: Geometry

    def read(self, block: int, layer: int) -> np.ndarray:
        """A copy of a block's bytes (uint8, one dimension)."""

    def write(self, block: int, layer: int, data: np.ndarray) -> None:
        """Overwrite a block."""


@dataclass(frozen=True)
class Limits:
    """Times in seconds, from the connector's extra configuration."""

    deadline_s: float = 120.0
    idle_s: float = 10.0
    connect_s: float = 5.0


class WorkerHalf:
    """``sender`` is None in an engine that only consumes."""

    def __init__(
        self, blocks: Blocks, store: KvStore, *, sender: KvSender | None, limits: Limits,
        note: Note, warn: Callable[[str], None] = lambda text: None,
    ) -> None:  # fmt: skip
        self.blocks, self.store, self.sender = blocks, store, sender
        self.limits, self.note, self.warn = limits, note, warn
        self._lock = threading.Lock()
        self._done: set[str] = set()
        self._invalid: set[int] = set()

    def save(self, saves: Sequence[Save]) -> None:
        """Copy whole prefixes into the store; one that is there already stays."""
        geometry = self.blocks.geometry
        for save in saves:
            if save.key not in self.store:
                layers = range(len(geometry.layers))
                held = tuple(
                    tuple(self.blocks.read(block, layer) for layer in layers)
                    for block in save.blocks
                )
                self.store.put(Prefix(save.key, geometry, held))
            tokens = len(save.blocks) * geometry.block_tokens
            self.note("kept", request=save.request, prefix=save.key, tokens=tokens)

    def load(self, loads: Sequence[Load]) -> None:
        """Start fetching, each request in a thread of its own: the engine goes on decoding."""
        for load in loads:
            threading.Thread(target=self._fetch, args=(load,), daemon=True).start()

    def finished(self) -> set[str]:
        """Requests whose fetching has ended since the last call, however it ended."""
        with self._lock:
            done, self._done = self._done, set()
        return done

    def invalid(self) -> set[int]:
        """Blocks that did not arrive, of the requests that ended."""
        with self._lock:
            bad, self._invalid = self._invalid, set()
        return bad

    def close(self) -> None:
        """Stop sending. Fetches end by themselves, at their deadline at the latest."""
        if self.sender is not None:
            self.sender.close()

    def _fetch(self, load: Load) -> None:
        found = Fetched(reason="the fetching thread ended early")
        self.note("fetching", request=load.request, prefix=load.key, blocks=len(load.blocks),
                  wire=load.wire)  # fmt: skip
        try:
            found = fetch(
                self._wanted(load),
                write=lambda block, layer, data: self.blocks.write(load.blocks[block], layer, data),
            )
        except Exception as error:  # the engine waits for this thread, so it must always report
            found = Fetched(reason=f"fetching failed: {error!r}")
        finally:
            self._report(load, found)

    def _report(self, load: Load, found: Fetched) -> None:
        whole = found.blocks == len(load.blocks)
        tokens = found.blocks * self.blocks.geometry.block_tokens
        self.note("fetched" if whole else "recompute", request=load.request, prefix=load.key,
                  wire=load.wire, tokens=tokens, wanted_blocks=len(load.blocks),
                  **asdict(found))  # fmt: skip
        if not whole:
            self.warn(
                f"KV transfer for {load.request} ended after {found.blocks} of "
                f"{len(load.blocks)} blocks ({found.reason}); the rest is computed here"
            )
        with self._lock:
            self._invalid.update(load.blocks[found.blocks :])
            self._done.add(load.request)

    def _wanted(self, load: Load) -> Wanted:
        limits = self.limits
        return Wanted(
            load.request, load.host, load.port, load.key, load.first,
            load.first + len(load.blocks), self.blocks.geometry, wire=load.wire,
            deadline_s=load.deadline_s or limits.deadline_s, idle_s=limits.idle_s,
            connect_s=limits.connect_s,
        )  # fmt: skip
