"""Arguments of a prefilling and a decoding server that hand blocks over, and what they wrote."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from turbo_lab.core import host
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.kv_connector.journal import read_journal

Side = Literal["producer", "consumer"]
MODULE = "turbo_lab.parallel.kv_connector"


@dataclass(frozen=True)
class Pair:
    """Two servers on one machine, one core each where there are two. ``folder``: their journals."""

    folder: Path

    @classmethod
    def at(cls, owner: Path | str) -> Pair:
        """The pair that belongs to ``owner`` (a pool's folder, for example), always the same."""
        name = hashlib.sha256(str(owner).encode()).hexdigest()[:8]
        return cls(Path(tempfile.gettempdir()) / f"turbo-lab-handover-{name}")

    def args(self, args: VllmArgs, side: Side, **extra: float | str) -> VllmArgs:
        """``args`` for one side: the connector, its core, and counted cached tokens.

        ``extra``: the connector's own settings (``deadline_s``, ``idle_s``, ``store_gib`` ...).
        A load that fails is computed again by the engine (``kv_load_failure_policy``), never an
        error for the client.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        connector = {
            "kv_connector": "SocketKvConnector",
            "kv_connector_module_path": MODULE,
            "kv_role": f"kv_{side}",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"journal_path": str(self.journal(side)), **extra},
        }
        flags = (
            ("--kv-transfer-config", json.dumps(connector, sort_keys=True)),
            ("--enable-prompt-tokens-details", ""),
        )
        return args.replace(cores=self.cores(side), extra=(*args.extra, *flags))

    def cores(self, side: Side) -> tuple[int, ...]:
        """The first half of the machine's cores for the producer, the other for the consumer."""
        granted = tuple(host.core_ids())
        half = len(granted) // 2
        if not half:
            return granted  # one core for both; whoever measures must say so
        return granted[:half] if side == "producer" else granted[half:]

    def journal(self, side: Side) -> Path:
        """Where this side writes what it did."""
        return self.folder / f"{side}.jsonl"

    def events(self, side: Side, event: str | None = None) -> list[dict[str, Any]]:
        """Lines of a side's journal so far, all or those of one kind, oldest first."""
        rows = read_journal(self.journal(side))
        return [row for row in rows if event is None or row["event"] == event]

    def remove(self) -> None:
        """Delete the journals."""
        shutil.rmtree(self.folder, ignore_errors=True)


def keep() -> dict[str, Any]:
    """``kv_transfer_params`` of a request whose blocks the producer shall keep."""
    return {"do_remote_decode": True, "do_remote_prefill": False}


def reroute(params: Mapping[str, Any], address: tuple[str, int], **changes: Any) -> dict[str, Any]:
    """A producer's offer, fetched through another address (a shaped link, for example).

    vLLM puts the producer's own cache hits into an offer, and a consumer then reports these as
    ``cached_tokens``. They are left out, so that the consumer reports what it fetched itself.
    """
    own = {k: v for k, v in params.items() if k != "remote_prefill_cached_tokens"}
    return {**own, "remote_host": address[0], "remote_port": address[1], **changes}
