"""What the scheduler's half of the connector decides: which prompts to keep, which to fetch.

A prompt is kept when its request carries ``do_remote_decode``; the answer then carries what a
consumer needs (``do_remote_prefill`` and the producer's address), under the names that vLLM's own
connectors use. Only whole blocks travel, and always at least one token is left to compute: the
same rule as that of the engine's own prefix cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from turbo_lab.core.errors import TurboLabError
from turbo_lab.engines.kv_connector.codec import RAW, require_wire
from turbo_lab.engines.kv_connector.journal import Note
from turbo_lab.engines.kv_connector.store import prefix_key


@dataclass(frozen=True)
class Save:
    """Keep these blocks under ``key`` once this step's forward pass is over."""

    request: str
    key: str
    blocks: tuple[int, ...]


@dataclass(frozen=True)
class Load:
    """Fetch blocks from ``first`` on into ``blocks`` (the engine's block ids)."""

    request: str
    key: str
    host: str
    port: int
    first: int
    blocks: tuple[int, ...]
    wire: str
    deadline_s: float | None = None


@dataclass
class Plan:
    """Work for the worker's half in one step."""

    saves: list[Save] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)


@dataclass(frozen=True)
class Offer:
    """What a request says about blocks that a producer keeps for it."""

    key: str
    host: str
    port: int
    tokens: int
    wire: str = RAW
    deadline_s: float | None = None

    @classmethod
    def read(cls, params: Mapping[str, Any]) -> Offer:
        """From ``kv_transfer_params``. Raises TurboLabError for what is missing or wrong."""
        try:
            deadline = params.get("deadline_s")
            return cls(
                key=str(params["remote_prefix"]), host=str(params["remote_host"]),
                port=int(params["remote_port"]), tokens=int(params["remote_tokens"]),
                wire=require_wire(params.get("wire", RAW)),
                deadline_s=None if deadline is None else float(deadline),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise TurboLabError(f"kv_transfer_params are not usable: {error!r}") from error


class SchedulerHalf:
    """Bookkeeping by request id. Duck-typed: it sees requests only through a few attributes."""

    def __init__(self, *, block_tokens: int, model: str, note: Note) -> None:
        self.block_tokens, self.model, self.note = block_tokens, model, note
        self.address: tuple[str, int] | None = None  # of this engine's own sender
        self._keeping: dict[str, Any] = {}
        self._kept: set[str] = set()
        self._tried: set[str] = set()
        self._loads: list[Load] = []

    def new_request(self, request: Any) -> None:
        """Remember a prompt that is to be kept."""
        if (request.kv_transfer_params or {}).get("do_remote_decode"):
            self._keeping[request.request_id] = request

    def matched(self, request: Any, computed_tokens: int) -> int:
        """Tokens beyond ``computed_tokens`` that can be fetched; 0 where nothing was offered.

        Asked again after a failure it says 0, so that the engine computes the prompt itself.
        """
        params = request.kv_transfer_params or {}
        if not params.get("do_remote_prefill") or request.request_id in self._tried:
            return 0
        try:
            offer = self._offer(request)
        except TurboLabError as error:
            self._tried.add(request.request_id)
            self.note("refused", request=request.request_id, reason=str(error))
            return 0
        return max(0, self._usable(request, offer) - computed_tokens)

    def allocated(self, request: Any, block_ids: list[int], external_tokens: int) -> None:
        """The engine has set blocks aside for what ``matched`` has promised."""
        if external_tokens <= 0:
            return
        offer = Offer.read(request.kv_transfer_params)
        end = self._usable(request, offer) // self.block_tokens
        first = end - external_tokens // self.block_tokens
        self._tried.add(request.request_id)
        self._loads.append(
            Load(request.request_id, offer.key, offer.host, offer.port, first,
                 tuple(block_ids[first:end]), offer.wire, offer.deadline_s)
        )  # fmt: skip

    def plan(self, scheduled: Mapping[str, int], *, block_ids: Callable[[str], list[int]]) -> Plan:
        """This step's work. ``scheduled``: tokens that the step computes, by request."""
        plan = Plan(loads=self._loads)
        self._loads = []
        for name in self._keeping.keys() & scheduled.keys() - self._kept:
            request = self._keeping[name]
            tokens = self._whole(len(request.prompt_token_ids))
            if request.num_computed_tokens + scheduled[name] < len(request.prompt_token_ids):
                continue  # a long prompt is computed in several steps
            self._kept.add(name)
            if tokens:
                blocks = block_ids(name)[: tokens // self.block_tokens]
                plan.saves.append(Save(name, self._key(request, tokens), tuple(blocks)))
        return plan

    def finished(self, request: Any) -> dict[str, Any] | None:
        """What the answer says to whoever sends the request on to a consumer."""
        name = request.request_id
        self._tried.discard(name)
        kept, found = name in self._kept, self._keeping.pop(name, None)
        self._kept.discard(name)
        if found is None or not kept or self.address is None:
            return None
        tokens = self._whole(len(request.prompt_token_ids))
        if not tokens:
            return None
        host, port = self.address
        return {
            "do_remote_prefill": True, "do_remote_decode": False, "remote_host": host,
            "remote_port": port, "remote_prefix": self._key(request, tokens),
            "remote_tokens": tokens,
        }  # fmt: skip

    def _whole(self, tokens: int) -> int:
        """Tokens in whole blocks, with at least one token behind them."""
        return max(0, tokens - 1) // self.block_tokens * self.block_tokens

    def _usable(self, request: Any, offer: Offer) -> int:
        return min(self._whole(offer.tokens + 1), self._whole(len(request.prompt_token_ids)))

    def _key(self, request: Any, tokens: int) -> str:
        return prefix_key(request.prompt_token_ids[:tokens], model=self.model)

    def _offer(self, request: Any) -> Offer:
        offer = Offer.read(request.kv_transfer_params)
        if self._key(request, offer.tokens) != offer.key:
            raise TurboLabError("the offered prefix is not the beginning of this prompt")
        return offer
