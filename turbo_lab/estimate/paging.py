"""Where the places of a KV pool go: closed forms for reserving, rounding and paging.

A request stores its prompt, then one token per step; the last token of a reply is never stored.
Shares are averages over time: a request counts for as many steps as its reply has tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError


@dataclass(frozen=True)
class Lengths:
    """One request, in tokens. ``output_tokens`` is at least 1."""

    prompt_tokens: int
    output_tokens: int

    @property
    def stored_tokens(self) -> int:
        """Places it holds at its end: ``P + N - 1``."""
        return self.prompt_tokens + self.output_tokens - 1


@dataclass(frozen=True)
class Shares:
    """Parts of the pool, adding up to 1.

    ``used``: tokens that are there. ``reserved``: will be used by the same request later.
    ``internal``: given to a request that will never use it. ``free``: given to nobody, and yet the
    next request in the queue does not fit (external fragmentation and the rest of the pool).
    """

    used: float
    reserved: float
    internal: float
    free: float = 0.0

    @property
    def wasted(self) -> float:
        """Everything but ``used``."""
        return self.reserved + self.internal + self.free


def blocks_of(tokens: int, *, block_tokens: int) -> int:
    """Whole blocks that hold ``tokens``: ``ceil(S / b)``. Raises UsageError."""
    _check_block(block_tokens)
    return -(-tokens // block_tokens)


def expected_block_waste(block_tokens: int) -> float:
    """Empty places in a request's last block, on average: ``(b - 1) / 2``.

    Every remainder 1 .. b of the last block is taken as equally likely, which holds when lengths
    spread over many blocks. Raises UsageError.
    """
    _check_block(block_tokens)
    return (block_tokens - 1) / 2


def power_of_two(tokens: int) -> int:
    """The smallest power of two that is no less than ``tokens``."""
    return 1 << max(0, tokens - 1).bit_length()


def reserved_shares(
    requests: Sequence[Lengths], *, reserve: Callable[[Lengths], int], unusable: float = 0.0
) -> Shares:
    """Shares when each request gets ``reserve(request)`` places at its start and keeps them.

    With reply N, prompt P and reservation R: used ``sum N (P + (N-1)/2)``, reserved
    ``sum N (N-1)/2``, internal ``sum N (R - P - N + 1)``, all over ``sum N R``. ``unusable``: share
    of the pool that no reservation can reach (``pool mod R`` for equal ones).

    Raises UsageError for no requests, or a reservation below what its request stores.
    """
    used = reserved = internal = 0.0
    for request in _not_empty(requests):
        places, steps = reserve(request), request.output_tokens
        if places < request.stored_tokens:
            raise UsageError(
                f"a reservation of {places} places cannot hold the {request.stored_tokens} tokens "
                "that the request stores; reserve at least as many."
            )
        later = (steps - 1) / 2
        used += steps * (request.prompt_tokens + later)
        reserved += steps * later
        internal += steps * (places - request.stored_tokens)
    return _shares(used, reserved, internal, unusable)


def paged_shares(requests: Sequence[Lengths], *, block_tokens: int) -> Shares:
    """Shares when places are given out block by block, as they are needed.

    Used as in ``reserved_shares``, nothing is reserved, internal ``sum N (b - 1) / 2``.
    """
    waste = expected_block_waste(block_tokens)
    steps = sum(r.output_tokens for r in _not_empty(requests))
    used = sum(r.output_tokens * (r.prompt_tokens + (r.output_tokens - 1) / 2) for r in requests)
    return _shares(used, 0.0, steps * waste, 0.0)


def _shares(used: float, reserved: float, internal: float, unusable: float) -> Shares:
    whole = (used + reserved + internal) / (1 - unusable)
    return Shares(used / whole, reserved / whole, internal / whole, unusable)


def _not_empty(requests: Sequence[Lengths]) -> Sequence[Lengths]:
    if not requests:
        raise UsageError("there are no requests to average over")
    if least := [r for r in requests if r.output_tokens < 1 or r.prompt_tokens < 1]:
        raise UsageError(f"{least[0]}: prompt and reply must have at least one token")
    return requests


def _check_block(block_tokens: int) -> None:
    if block_tokens < 1:
        raise UsageError(f"block_tokens is {block_tokens}; allowed: whole numbers from 1")
