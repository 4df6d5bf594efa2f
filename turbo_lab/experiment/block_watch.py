"""Runs inside the vLLM server: writes down every request's block table, offloads on request.

vLLM loads it as a KV connector (``engines.kv_watch`` builds the arguments). The engine tells a
connector which blocks a request was given: these ids are the block table. Storing and loading is
left to vLLM's own ``ExampleConnector``, which keeps each prompt's whole blocks as files; here it
works only for requests that ask for it (``kv_transfer_params={"offload": true}``), so that one
server serves both arms of a comparison.
"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector


class BlockWatch(ExampleConnector):
    """ExampleConnector with a log of block tables and a switch per request.

    Extra configuration: ``watch_path`` (JSON lines are appended there) and ``shared_storage_path``
    (folder of the offloaded blocks).
    """

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._offloads: set[str] = set()
        path = self._kv_transfer_config.get_from_extra_config("watch_path", None)
        scheduler = role == KVConnectorRole.SCHEDULER  # the worker's half knows no block tables
        self._log = Path(path) if path and scheduler else None

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        """Offloaded tokens beyond the pool's own; 0 for a request that did not ask."""
        if not (request.kv_transfer_params or {}).get("offload"):
            return 0, False
        self._offloads.add(request.request_id)
        found, later = super().get_num_new_matched_tokens(request, num_computed_tokens)
        return max(0, found), later  # the pool may hold one block more than the rule of the files

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """Log what this step gave to whom; store only for requests that asked."""
        self._write(scheduler_output)
        wanted = [r for r in scheduler_output.scheduled_new_reqs if r.req_id in self._offloads]
        return super().build_connector_meta(
            dataclasses.replace(scheduler_output, scheduled_new_reqs=wanted)
        )

    def request_finished(self, request: Any, block_ids: Any) -> Any:
        """Log the end: from now on the blocks may be given to others."""
        self._offloads.discard(request.request_id)
        self._line(request=request.request_id, ended=True)
        return super().request_finished(request, block_ids)

    def _write(self, step: Any) -> None:
        for new in step.scheduled_new_reqs:
            self._line(
                request=new.req_id, cached_tokens=new.num_computed_tokens,
                prompt_tokens=len(new.prompt_token_ids or ()), blocks=list(new.block_ids[0]),
            )  # fmt: skip
        running = step.scheduled_cached_reqs
        for request, grown in zip(running.req_ids, running.new_block_ids, strict=True):
            if grown is not None and grown[0]:
                resumed = request in running.resumed_req_ids
                self._line(request=request, grown=list(grown[0]), resumed=resumed)

    def _line(self, **facts: Any) -> None:
        if self._log is not None:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"t_s": time.perf_counter(), **facts}) + "\n")
