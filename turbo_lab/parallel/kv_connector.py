"""Loaded by vLLM inside the engine process: the two halves behind vLLM's connector interface.

``--kv-transfer-config`` names this module and ``SocketKvConnector``; ``args`` builds it. Extra
configuration: ``listen_host``, ``listen_port`` (0: a free one), ``store_gib``, ``journal_path``,
``deadline_s``, ``idle_s``, ``connect_s``.

Who reaches the port gets the caches: there is no authentication, so listen on loopback or on a
network of one's own. Digests guard against errors, not against people.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.logger import init_logger

from turbo_lab.engines.kv_connector.journal import journal
from turbo_lab.engines.kv_connector.scheduling import Plan, SchedulerHalf
from turbo_lab.engines.kv_connector.sender import KvSender
from turbo_lab.engines.kv_connector.store import Geometry, KvStore
from turbo_lab.engines.kv_connector.working import Limits, WorkerHalf

logger = init_logger("vllm.turbo_lab.kv_connector")
GIB = 2**30
SWITCH_S = 2e-4


@dataclass
class SocketKvMetadata(KVConnectorMetadata):
    """One step's plan, from the scheduler to the worker."""

    plan: Plan = field(default_factory=Plan)


@dataclass
class SocketKvAddress(KVConnectorHandshakeMetadata):
    """Where this engine's sender listens, from the worker to the scheduler."""

    host: str
    port: int


class TorchBlocks:
    """vLLM's KV cache tensors, one per layer, first dimension the block."""

    def __init__(self, caches: dict[str, torch.Tensor], *, block_tokens: int) -> None:
        self._caches = list(caches.values())
        one = self._caches[0]
        shapes = {(tuple(cache.shape[1:]), cache.dtype) for cache in self._caches}
        if len(shapes) > 1 or block_tokens not in one.shape[1:]:
            raise ValueError(
                f"SocketKvConnector moves blocks of {block_tokens} tokens that are alike in all "
                f"layers; this model's cache has {sorted(map(str, shapes))}"
            )
        dtype = str(one.dtype).removeprefix("torch.")
        self.geometry = Geometry(tuple(caches), dtype, tuple(one.shape[1:]), block_tokens)
        # On a CPU, numpy views: a copy through torch would start threads of its own.
        plain = all(c.device.type == "cpu" and c[0].is_contiguous() for c in self._caches)
        self._views = [c.view(torch.uint8).numpy() for c in self._caches] if plain else None

    def read(self, block: int, layer: int) -> np.ndarray:
        """A copy of a block's bytes."""
        if self._views is not None:
            return self._views[layer][block].reshape(-1).copy()
        held = self._caches[layer][block].contiguous().view(torch.uint8)
        return held.cpu().numpy().reshape(-1)

    def write(self, block: int, layer: int, data: np.ndarray) -> None:
        """Overwrite a block."""
        if self._views is not None:
            held = self._views[layer][block]
            np.copyto(held, data.reshape(held.shape))
            return
        cache = self._caches[layer]
        held = torch.from_numpy(data.copy()).view(cache.dtype).view(self.geometry.shape)
        cache[block].copy_(held.to(cache.device))
        if cache.device.type == "cuda":
            torch.cuda.current_stream().synchronize()  # other streams read it from now on


class SocketKvConnector(KVConnectorBase_V1):
    """Fetches KV blocks from another engine over a TCP socket; see the package's docstring."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        if vllm_config.parallel_config.world_size > 1:
            raise ValueError("SocketKvConnector serves one worker; start it without parallelism")
        self._config = self._kv_transfer_config
        self._note = journal(self._extra("journal_path", None))
        self._block_tokens = vllm_config.cache_config.block_size
        self._scheduler = SchedulerHalf(
            block_tokens=self._block_tokens, note=self._note,
            model=f"{vllm_config.model_config.model} {vllm_config.model_config.dtype}",
        )  # fmt: skip
        self._worker: WorkerHalf | None = None

    def _extra(self, name: str, default: Any) -> Any:
        return self._config.get_from_extra_config(name, default)

    @property
    def requires_kv_delivery(self) -> bool:
        """False: a prefix that is not kept is only computed twice."""
        return False

    # The worker's half

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """The cache exists: begin to listen, if this engine produces."""
        # The worker polls for its next step in Python. At the usual 5 ms a thread that moves
        # blocks would wait that long for the interpreter several times per frame.
        sys.setswitchinterval(SWITCH_S)
        store = KvStore(limit_bytes=int(float(self._extra("store_gib", 1)) * GIB))
        limits = Limits(**{
            name: float(self._extra(name, getattr(Limits, name)))
            for name in Limits.__dataclass_fields__
        })  # fmt: skip
        sender = KvSender(
            store, note=self._note, host=self._extra("listen_host", "127.0.0.1"),
            port=int(self._extra("listen_port", 0)), deadline_s=limits.deadline_s,
            idle_s=limits.idle_s,
        )  # fmt: skip
        self._worker = WorkerHalf(
            TorchBlocks(kv_caches, block_tokens=self._block_tokens), store, note=self._note,
            sender=sender.start() if self._config.is_kv_producer else None, limits=limits,
            warn=logger.warning,
        )  # fmt: skip

    def get_handshake_metadata(self) -> SocketKvAddress | None:
        """Tell the scheduler where the sender listens."""
        sender = self._worker.sender if self._worker else None
        return None if sender is None else SocketKvAddress(*sender.address)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Start this step's fetches; they go on beside the following steps."""
        if self._worker is not None:
            self._worker.load(self._plan().loads)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing: a request is only scheduled when all its blocks are there."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Nothing: whole prefixes are kept after the step."""

    def wait_for_save(self) -> None:
        """Keep the prefixes that this step has completed."""
        if self._worker is not None:
            self._worker.save(self._plan().saves)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[None, set[str] | None]:
        """Requests whose fetching has ended."""
        return None, (self._worker.finished() if self._worker else None) or None

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Blocks that must be computed here."""
        return self._worker.invalid() if self._worker else set()

    def shutdown(self) -> None:
        """Stop listening."""
        if self._worker is not None:
            self._worker.close()

    def _plan(self) -> Plan:
        metadata = self._get_connector_metadata()
        return metadata.plan if isinstance(metadata, SocketKvMetadata) else Plan()

    # The scheduler's half

    def set_xfer_handshake_metadata(
        self, metadata: dict[int, KVConnectorHandshakeMetadata]
    ) -> None:
        """Learn where the worker's sender listens."""
        for told in metadata.values():
            if isinstance(told, SocketKvAddress):
                self._scheduler.address = (told.host, told.port)

    def on_new_request(self, request: Any) -> None:
        """Remember prompts to keep."""
        self._scheduler.new_request(request)

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int, bool]:
        """Tokens to fetch, always beside the engine's steps."""
        if not self._config.is_kv_consumer:
            return 0, False
        found = self._scheduler.matched(request, num_computed_tokens)
        return found, found > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Blocks were set aside."""
        self._scheduler.allocated(request, list(blocks.get_block_ids()[0]), num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> SocketKvMetadata:
        """This step's plan."""
        manager = self._kv_cache_manager
        return SocketKvMetadata(
            self._scheduler.plan(
                scheduler_output.num_scheduled_tokens,
                block_ids=lambda name: list(manager.get_block_ids(name)[0]),
            )
        )

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """The blocks may be freed at once; the kept copy is the store's."""
        return False, self._scheduler.finished(request)
