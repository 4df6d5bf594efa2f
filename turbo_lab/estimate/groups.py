"""vLLM's grouping of cache layers: one shared pool of blocks, one block table per group."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.pages import CacheLayer

Staged = tuple[int, CacheLayer]


@dataclass(frozen=True)
class Group:
    """Layers that share one block table. ``layers`` are (pipeline stage, layer)."""

    layers: tuple[Staged, ...]

    def bytes_per_block(self, *, stage: int) -> int:
        """Bytes of one block on one stage: the sum of its layers' pages."""
        return sum(layer.page_bytes for at, layer in self.layers if at == stage)

    @property
    def block_tokens(self) -> int:
        """Tokens per block of this group."""
        return self.layers[0][1].block_tokens

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of its layers, each once."""
        return tuple(dict.fromkeys(layer.kind for _, layer in self.layers))

    def blocks_per_request(self, *, length: int, in_flight: int) -> int:
        """Blocks one request takes from the pool for this group."""
        return max(
            layer.blocks_per_request(length=length, in_flight=in_flight) for _, layer in self.layers
        )


def group_layers(layers: list[Staged]) -> tuple[Group, ...]:
    """Split the layers into groups as vLLM 0.32 does for layouts with the layer outermost.

    One group when all layers always need the same number of slots; otherwise pages are made equal
    (longer blocks where the page divides the largest, padding elsewhere), and each kind is cut
    into groups of one size: the smallest kind's layer count, or the largest kind's when that is
    less than 1.5 times the smallest. Source: ``get_kv_cache_groups``.
    """
    if not layers:
        return ()
    if _same_slots([layer for _, layer in layers]):
        return (Group(tuple(layers)),)
    try:
        unified = _unify_pages(layers)
    except _PagesDifferError as error:
        promoted = _promote(layers)
        if promoted is None:
            raise UsageError(str(error)) from error
        return (Group(tuple(promoted)),)
    kinds: dict[CacheLayer, list[Staged]] = {}
    for staged in unified:
        kinds.setdefault(staged[1], []).append(staged)
    counts = [len(same) for same in kinds.values()]
    size = max(counts) if max(counts) < 1.5 * min(counts) else min(counts)
    groups: list[Group] = []
    for same in kinds.values():
        parts = -(-len(same) // size)
        groups += [Group(tuple(same[i::parts])) for i in range(parts)]
    return tuple(groups)


class _PagesDifferError(Exception):
    """Pages of different size that neither longer blocks nor padding make equal."""


def _same_slots(layers: list[CacheLayer]) -> bool:
    """True when all layers need the same number of slots for any request."""
    if len({layer.block_tokens for layer in layers}) > 1:
        return False
    kinds = {layer.kind for layer in layers}
    if kinds <= {"full", "mla", "indexer"}:
        return True
    if len(kinds) > 1:
        return False
    if kinds == {"state"}:
        return len({(la.page_bytes, la.state_blocks) for la in layers}) == 1
    return len({layer.window_tokens for layer in layers}) == 1


def _unify_pages(layers: list[Staged]) -> list[Staged]:
    largest = max(layer.page_bytes for _, layer in layers)
    unified: list[Staged] = []
    for stage, layer in layers:
        if layer.page_bytes == largest:
            unified.append((stage, layer))
        elif layer.kind == "state":
            unified.append((stage, replace(layer, padded_bytes=largest)))
        elif largest % layer.page_bytes == 0:
            longer = layer.block_tokens * (largest // layer.page_bytes)
            unified.append((stage, replace(layer, block_tokens=longer)))
        elif layer.kind in ("mla", "indexer"):
            raise _PagesDifferError(
                f"An {layer.kind} page of {layer.page_bytes} bytes does not divide the largest "
                f"page of {largest} bytes, and such pages cannot be padded: vLLM refuses this mix."
            )
        else:
            unified.append((stage, replace(layer, padded_bytes=largest)))
    return unified


def _promote(layers: list[Staged]) -> list[Staged] | None:
    """MLA beside a sliding window: the window's layers are sized as full attention."""
    kinds = Counter(layer.kind for _, layer in layers)
    if not kinds["mla"] or not kinds["sliding"] or kinds["chunked"] or kinds["state"]:
        return None
    return [
        (
            stage,
            replace(layer, kind="full", window_tokens=None) if layer.kind == "sliding" else layer,
        )
        for stage, layer in layers
    ]
