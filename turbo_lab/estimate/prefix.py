"""Prefix reuse: how many tokens of a prompt an engine finds in its pool, by rule and by simulation.

The rules are vLLM's: only whole blocks are found, a block is found only behind all blocks before
it, and at least the last token of a prompt is computed again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.paging import blocks_of


def hit_tokens(*, shared_tokens: int, prompt_tokens: int, block_tokens: int) -> int:
    """Tokens found when the first ``shared_tokens`` of a prompt are cached.

    ``b * floor(min(shared, P - 1) / b)``: whole blocks, and never the last token, whose output
    must be computed. Source: vLLM 0.32, ``KVCacheManager.get_computed_blocks``.
    """
    _check(shared_tokens, prompt_tokens, block_tokens)
    return min(shared_tokens, prompt_tokens - 1) // block_tokens * block_tokens


def offload_hit_tokens(*, prompt_tokens: int, block_tokens: int) -> int:
    """Tokens that vLLM's ExampleConnector loads for a stored prompt: ``b * floor((P - 2) / b)``.

    It leaves one more token than the pool does. Source: vLLM 0.32, ``ExampleConnector``.
    """
    _check(0, prompt_tokens, block_tokens)
    return max(0, prompt_tokens - 2) // block_tokens * block_tokens


def tenants_that_fit(
    *,
    pool_blocks: int,
    prefix_tokens: int,
    prompt_tokens: int,
    block_tokens: int,
    output_tokens: int = 1,
) -> int:
    """Most tenants whose prefixes stay cached when they ask in turn.

    ``(pool + full - open) / (prefix + full)`` in blocks. Behind its prefix a request fills ``full``
    blocks, new ones each time, and has ``open`` (0 or 1) block that is not full. The full ones stay
    in the pool as long as the prefix before them, though nobody asks for them again: only a
    tenant's own next request displaces them. The open one is reused at once. Without full ones this
    is ``(pool - open) / prefix``.

    With more tenants than this the least recently used blocks of a prefix are evicted before they
    are asked for again. 0 where the pool cannot hold one request. The last token of a reply is
    never stored.
    """
    prefix = prefix_tokens // block_tokens
    if prefix < 1:
        raise UsageError(f"a prefix of {prefix_tokens} tokens fills no block of {block_tokens}")
    stored = prompt_tokens + output_tokens - 1
    held = blocks_of(stored, block_tokens=block_tokens)
    if held > pool_blocks:
        return 0
    full = stored // block_tokens - prefix
    unfilled = held - stored // block_tokens
    return (pool_blocks + full - unfilled) // (prefix + full)


def break_even_bandwidth_bytes_s(*, bytes_per_token: float, prefill_tok_s: float) -> float:
    """Bandwidth above which fetching a token's keys and values beats computing it again.

    ``bytes per token * prefill rate``. Raises UsageError for values that are not above 0.
    """
    if bytes_per_token <= 0 or prefill_tok_s <= 0:
        raise UsageError("bytes_per_token and prefill_tok_s must be above 0")
    return bytes_per_token * prefill_tok_s


@dataclass(frozen=True)
class Use:
    """What one request found and took. ``evicted``: cached blocks that it displaced."""

    hit_tokens: int
    new_blocks: int
    evicted: int


class PrefixCache:
    """A pool with prefix reuse, as vLLM 0.32 keeps it: one queue of free blocks, oldest first.

    Blocks that an ended request leaves are freed last block first, so the end of a prompt is
    forgotten before its beginning. A block that was never full is reused at once. ``blocks`` are
    usable ones (vLLM's null block is not among them). One group of full attention.
    """

    def __init__(self, blocks: int, *, block_tokens: int) -> None:
        if blocks < 1 or block_tokens < 1:
            raise UsageError(f"{blocks} blocks of {block_tokens} tokens: both must be at least 1")
        self.block_tokens = block_tokens
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, blocks + 1))
        self._key_of: dict[int, int] = {}  # block to the name of its content
        self._blocks_of: dict[int, dict[int, None]] = {}  # the same the other way round
        self._names: dict[tuple[Hashable, ...], int] = {}
        self._users: dict[int, int] = {}
        self.tables: dict[Hashable, list[int]] = {}

    def start(self, request: Hashable, prompt: Sequence[int], *, salt: Hashable = None) -> Use:
        """Find the cached beginning, take blocks for the rest, and cache what is full.

        Raises UsageError when the pool has too few free blocks, or for an empty prompt.
        """
        _check(0, len(prompt), self.block_tokens)
        keys = self._keys(prompt, salt)
        found = self._found(keys, limit=(len(prompt) - 1) // self.block_tokens)
        need = blocks_of(len(prompt), block_tokens=self.block_tokens) - len(found)
        self._refuse(need, free=len(self._free) - sum(block in self._free for block in found))
        for block in found:
            self._users[block] = self._users.get(block, 0) + 1
            self._free.pop(block, None)
        self.tables[request] = table = [*found]
        evicted = self._take(table, need)
        for block, key in zip(table[len(found) : len(keys)], keys[len(found) :], strict=True):
            self._key_of[block] = key
            self._blocks_of.setdefault(key, {})[block] = None
        return Use(len(found) * self.block_tokens, need, evicted)

    def grow(self, request: Hashable, tokens: int) -> int:
        """Take blocks until ``tokens`` fit. Returns how many cached blocks that displaced."""
        table = self.tables[request]
        return self._take(table, blocks_of(tokens, block_tokens=self.block_tokens) - len(table))

    def end(self, request: Hashable) -> None:
        """Free the blocks that nobody else uses; their content stays until they are given away."""
        for block in reversed(self.tables.pop(request)):
            self._users[block] -= 1
            if self._users[block]:
                continue
            self._free[block] = None
            if block not in self._key_of:
                self._free.move_to_end(block, last=False)

    def serve(self, prompt: Sequence[int], *, output_tokens: int = 1, salt: Hashable = None) -> Use:
        """One whole request while no other runs. Blocks that only the reply fills stay unnamed."""
        use = self.start("served", prompt, salt=salt)
        more = self.grow("served", len(prompt) + output_tokens - 1)
        self.end("served")
        return Use(use.hit_tokens, use.new_blocks, use.evicted + more)

    @property
    def held_blocks(self) -> int:
        """Different blocks in use."""
        return len({block for table in self.tables.values() for block in table})

    @property
    def cached_blocks(self) -> int:
        """Blocks whose content could be found, in use or not."""
        return len(self._key_of)

    def _keys(self, prompt: Sequence[int], salt: Hashable) -> list[int]:
        """A name for each full block: its tokens and everything before them."""
        names, parent, size = [], -1, self.block_tokens
        for start in range(0, len(prompt) // size * size, size):
            content = (parent, salt if start == 0 else None, tuple(prompt[start : start + size]))
            parent = self._names.setdefault(content, len(self._names))
            names.append(parent)
        return names

    def _found(self, keys: Sequence[int], *, limit: int) -> list[int]:
        found = []
        for key in keys[:limit]:
            if not (blocks := self._blocks_of.get(key)):
                break
            found.append(next(iter(blocks)))
        return found

    @staticmethod
    def _refuse(count: int, *, free: int) -> None:
        if count > free:
            raise UsageError(f"{count} blocks are wanted, {free} are free")

    def _take(self, table: list[int], count: int) -> int:
        self._refuse(count, free=len(self._free))
        evicted = 0
        for _ in range(count):
            block, _none = self._free.popitem(last=False)
            if (key := self._key_of.pop(block, None)) is not None:
                del self._blocks_of[key][block]
                evicted += 1
            self._users[block] = 1
            table.append(block)
        return evicted


def _check(shared: int, prompt: int, block: int) -> None:
    if prompt < 1 or block < 1 or shared < 0:
        raise UsageError(f"prompt {prompt}, block {block} and shared {shared} tokens: impossible")
