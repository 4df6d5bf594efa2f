"""Four ways to hand out a pool of token places: slabs, first fit, buddies, pages.

All are bookkeeping only. ``spans`` tells which places a request has, so that tests can prove that
no place is given twice.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from typing import Protocol

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.paging import blocks_of, power_of_two

Span = tuple[int, int]  # (first place, how many)


class Allocator(Protocol):
    """A pool of ``places``. Keys name requests."""

    places: int

    def admit(self, key: int, *, prompt_tokens: int, final_tokens: int) -> bool:
        """Give a request what it needs to start; False when there is no room now."""

    def grow(self, key: int, tokens: int) -> bool:
        """Make room for ``tokens`` in all; False when there is none."""

    def release(self, key: int) -> None:
        """Take everything back."""

    def held(self, key: int) -> int:
        """How many places a request has."""

    def spans(self, key: int) -> list[Span]:
        """Which places these are."""


class FirstFit:
    """One stretch per request, as long as its final length, in the first hole that is large enough.

    It must know the final length, which no server does: the best that contiguous storage can do.
    """

    def __init__(self, places: int) -> None:
        self.places = _positive(places, "places")
        self.holes: list[Span] = [(0, places)]
        self._given: dict[int, Span] = {}

    def size(self, *, prompt_tokens: int, final_tokens: int) -> int:
        """Places to reserve for a request."""
        return final_tokens

    def admit(self, key: int, *, prompt_tokens: int, final_tokens: int) -> bool:
        """Take the first hole that is long enough."""
        need = self.size(prompt_tokens=prompt_tokens, final_tokens=final_tokens)
        for index, (start, length) in enumerate(self.holes):
            if length >= need:
                rest = [(start + need, length - need)] if length > need else []
                self.holes[index : index + 1] = rest
                self._given[key] = (start, need)
                return True
        return False

    def grow(self, key: int, tokens: int) -> bool:
        """Always true up to the reserved length."""
        return tokens <= self._given[key][1]

    def release(self, key: int) -> None:
        """Give the stretch back and join it with free neighbours."""
        insort(self.holes, self._given.pop(key))
        joined: list[Span] = []
        for start, length in self.holes:
            if joined and sum(joined[-1]) == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + length)
            else:
                joined.append((start, length))
        self.holes = joined

    def held(self, key: int) -> int:
        """Length of its stretch."""
        return self._given[key][1]

    def spans(self, key: int) -> list[Span]:
        """The one stretch."""
        return [self._given[key]]


class Slabs(FirstFit):
    """One stretch of the longest allowed length for everybody: what serving did before paging."""

    def __init__(self, places: int, *, longest: int) -> None:
        super().__init__(places)
        self.longest = _positive(longest, "longest")

    def size(self, *, prompt_tokens: int, final_tokens: int) -> int:
        """The longest allowed length. Raises UsageError for a request beyond it."""
        if final_tokens > self.longest:
            raise UsageError(
                f"a request of {final_tokens} tokens is longer than the {self.longest} that a "
                "slab holds; raise longest, or leave such requests out."
            )
        return self.longest


class Buddies(FirstFit):
    """Stretches of a power of two, at multiples of their size. ``places`` is a power of two."""

    def __init__(self, places: int) -> None:
        super().__init__(places)
        if power_of_two(places) != places:
            raise UsageError(f"places is {places}; a buddy allocator needs a power of two")

    def size(self, *, prompt_tokens: int, final_tokens: int) -> int:
        """The next power of two."""
        return power_of_two(final_tokens)

    def admit(self, key: int, *, prompt_tokens: int, final_tokens: int) -> bool:
        """Take the smallest free stretch and halve it until it fits."""
        need = self.size(prompt_tokens=prompt_tokens, final_tokens=final_tokens)
        fitting = [(length, start) for start, length in self.holes if length >= need]
        if not fitting:
            return False
        length, start = min(fitting)
        self.holes.remove((start, length))
        while length > need:
            length //= 2
            insort(self.holes, (start + length, length))
        self._given[key] = (start, need)
        return True

    def release(self, key: int) -> None:
        """Join with the free buddy, again and again."""
        start, length = self._given.pop(key)
        while length < self.places and (start ^ length, length) in self.holes:
            self.holes.remove((start ^ length, length))
            start, length = min(start, start ^ length), 2 * length
        insort(self.holes, (start, length))


class Pages:
    """Blocks of ``block_tokens`` places, given one by one; any free block serves any request."""

    def __init__(self, places: int, *, block_tokens: int) -> None:
        self.block_tokens = _positive(block_tokens, "block_tokens")
        self.places = _positive(places, "places")
        self.free = list(range(places // block_tokens))
        self.tables: dict[int, list[int]] = {}

    def admit(self, key: int, *, prompt_tokens: int, final_tokens: int) -> bool:
        """Blocks for the prompt; the reply's come later."""
        self.tables[key] = []
        if self.grow(key, prompt_tokens):
            return True
        del self.tables[key]
        return False

    def grow(self, key: int, tokens: int) -> bool:
        """Append blocks to the request's table until ``tokens`` fit; all or nothing."""
        table = self.tables[key]
        missing = blocks_of(tokens, block_tokens=self.block_tokens) - len(table)
        if missing > len(self.free):
            return False
        table += [self.free.pop() for _ in range(missing)]
        return True

    def release(self, key: int) -> None:
        """Every block is useful again at once."""
        self.free += self.tables.pop(key)

    def held(self, key: int) -> int:
        """Blocks times their size."""
        return len(self.tables[key]) * self.block_tokens

    def spans(self, key: int) -> list[Span]:
        """One span per block, in the order of the block table."""
        return [(block * self.block_tokens, self.block_tokens) for block in self.tables[key]]


def all_places(allocator: Allocator, keys: Iterable[int]) -> list[int]:
    """Every place of these requests, one entry each: a double entry is a double allocation."""
    return [
        place
        for key in keys
        for start, length in allocator.spans(key)
        for place in range(start, start + length)
    ]


def _positive(value: int, name: str) -> int:
    if value < 1:
        raise UsageError(f"{name} is {value}; allowed: whole numbers from 1")
    return value
