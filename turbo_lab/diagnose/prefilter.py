"""Where in a block one of many literals may stand: one pass over all positions at once.

Of each literal one part of eight bytes (of short ones, four) is kept. Every position of the block
is read as such a number and hashed into a table of bits; at the few hits the whole literal is
compared. So the cost hardly depends on how many literals there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

_BITS = 20
_ODD = {8: 0x9E3779B97F4A7C15, 4: 0x9E3779B1}
# How usual a letter is in running text; a part of unusual letters gives fewer wrong hits.
_USUAL = {letter: rank for rank, letter in enumerate(b"qzjx_kvb'/:pgfwymculdhrsnioate ")}

# Words of ordinary log lines; a part that stands here would hit on nearly every line.
_ORDINARY = (
    b"(enginecore_dp0 pid=1) (apiserver pid=1) (worker_tp0 pid=1) (vllmworker-0 pid=1) error info "
    b"warning [core.py:1] [multiproc_executor.py:1] [loggers.py:1] file /usr/local/lib/python3.12/"
    b"dist-packages/vllm/v1/core/kv_cache_utils.py site-packages/torch/ line 1, in _init_executor "
    b"get_kv_cache_configs model_executor gpu_memory_utilization max_model_len "
    b"trust_remote_code tensor_parallel_size quantization attention request requests worker cache "
    b"memory block the model device engine tokens loading weights took seconds server process "
    b"not for is in of and to a "
)


class Prefilter:
    """Finds the positions at which parts of the literals stand. Literals need four bytes."""

    def __init__(self, literals: Iterable[bytes]) -> None:
        parts: dict[int, dict[bytes, set[tuple[int, bytes]]]] = {8: {}, 4: {}}
        for literal in literals:
            width = 8 if len(literal) >= 8 else 4
            part = _rarest(literal, width)
            parts[width].setdefault(part, set()).add((literal.find(part), literal))
        self._parts = {width: _Numbers(rows, width) for width, rows in parts.items() if rows}

    def hits(self, block: bytes) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """(positions, widths) of the literals' parts in the block, sorted by position."""
        found = [(one.positions(block), width) for width, one in self._parts.items()]
        places = np.concatenate([at for at, _ in found]) if found else np.empty(0, np.int64)
        widths = np.concatenate([np.full(at.size, width) for at, width in found] or [places])
        order = np.argsort(places, kind="stable")
        return places[order], widths[order]

    def holds(self, block: bytes, at: int, width: int) -> bool:
        """True when a whole literal stands around the part that a hit names."""
        return any(
            at >= before and block.startswith(literal, at - before)
            for before, literal in self._parts[width].parts[block[at : at + width]]
        )


class _Numbers:
    """Parts of one width as numbers, with the table of their hashes."""

    def __init__(self, parts: Mapping[bytes, set[tuple[int, bytes]]], width: int) -> None:
        self.parts = {part: tuple(sorted(rows)) for part, rows in parts.items()}
        self.width, self.type = width, np.dtype(f"<u{width}")
        self.shift = self.type.type(8 * width - _BITS)
        self.odd = self.type.type(_ODD[width])
        self.values = np.array(
            sorted(int.from_bytes(part, "little") for part in parts), dtype=self.type
        )
        self.table = np.zeros(1 << _BITS, dtype=bool)
        self.table[self._hash(self.values)] = True

    def _hash(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with np.errstate(over="ignore"):
            return (values * self.odd) >> self.shift

    def positions(self, block: bytes) -> np.ndarray[Any, Any]:
        found = []
        for offset in range(self.width):
            count = (len(block) - offset) // self.width
            if count <= 0:
                continue
            values = np.frombuffer(block, dtype=self.type, count=count, offset=offset)
            hits = np.flatnonzero(self.table[self._hash(values)])
            if hits.size:
                hits = hits[np.isin(values[hits], self.values)]
                found.append(hits * self.width + offset)
        return np.concatenate(found) if found else np.empty(0, np.int64)


def _rarest(literal: bytes, width: int) -> bytes:
    parts = [literal[i : i + width] for i in range(len(literal) - width + 1)]

    def price(part: bytes) -> tuple[bool, int, bytes]:
        return part in _ORDINARY, sum(_USUAL.get(letter, 0) for letter in part), part

    return min(parts, key=price)
