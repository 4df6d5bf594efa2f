"""Solutions of notebook 16."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from math import ceil
from types import MappingProxyType


def queue_share(waves: int) -> float:
    """Queue over end to end for equal requests that come at once, ``waves`` per seat.

    Wave k waits k - 1 services: (w - 1) / 2 in the mean, and every request takes one service more.
    """
    return (waves - 1) / (waves + 1)


def requests_that_fit(blocks: int, block_tokens: int, prompt: int, reply: int) -> int:
    """Whole requests in the usable blocks of a pool; its null block belongs to nobody."""
    return (blocks - 1) // ceil((prompt + reply) / block_tokens)


def precision_recall(
    pairs: Sequence[tuple[AbstractSet[str], AbstractSet[str]]],
) -> tuple[float | None, float | None]:
    """Right over named, and right over expected, summed over all pairs."""
    right = sum(len(expected & named) for expected, named in pairs)
    told = sum(len(named) for _, named in pairs)
    wanted = sum(len(expected) for expected, _ in pairs)
    return (right / told if told else None, right / wanted if wanted else None)


def root_line(lines: Sequence[str]) -> int | None:
    """The first error that is not the consequence of another."""
    consequences = ("EngineDeadError", "initialization failed")
    for number, line in enumerate(lines):
        if line.startswith("ERROR") and not any(word in line for word in consequences):
            return number
    return None


def slowest_place(queue_s: float, server_s: float, client_s: float) -> str:
    """The largest of three parts: queue, engine, outside the server."""
    parts = {"queue": queue_s, "engine": server_s - queue_s, "outside": client_s - server_s}
    return max(parts, key=lambda place: parts[place])


SOLUTIONS = MappingProxyType({
    "16.1": queue_share,
    "16.2": requests_that_fit,
    "16.3": precision_recall,
    "16.4": root_line,
    "16.5": slowest_place,
})  # fmt: skip
