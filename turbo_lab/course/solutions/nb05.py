"""Solutions of notebook 05."""

from __future__ import annotations

from collections import OrderedDict
from types import MappingProxyType


def empty_places(stored_tokens: list[int], block_tokens: int) -> int:
    """What is missing to a whole number of blocks; a length that fits exactly wastes nothing."""
    return sum(-tokens % block_tokens for tokens in stored_tokens)


def used_share(requests: list[tuple[int, int]], slab_tokens: int) -> float:
    """Requests are (prompt, reply). A request is there for as many steps as its reply has tokens.

    During these it holds P, P + 1, ... P + N - 1 tokens: P + (N - 1) / 2 on average. Long replies
    count more than short ones, because they stay longer.
    """
    steps = sum(reply for _, reply in requests)
    used = sum(reply * (prompt + (reply - 1) / 2) for prompt, reply in requests)
    return used / (steps * slab_tokens)


def hit_tokens(shared_tokens: int, prompt_tokens: int, block_tokens: int) -> int:
    """Whole blocks only; the last token of the prompt is always computed, to get an output."""
    usable = min(shared_tokens, prompt_tokens - 1)
    return usable // block_tokens * block_tokens


def blocks_in_use(prompts: list[list[int]], block_tokens: int) -> int:
    """A full block is shared with whoever has the same tokens from the beginning up to its end.

    Keys depend on all tokens before them, so equal words in another place are another block.
    """
    shared, own = set(), 0
    for prompt in prompts:
        full = len(prompt) // block_tokens
        shared |= {tuple(prompt[: (i + 1) * block_tokens]) for i in range(full)}
        own += len(prompt) % block_tokens > 0  # the last block is not full: nobody shares it
    return len(shared) + own


def lru_hits(wanted: list[str], capacity: int) -> int:
    """Whoever was used least recently makes room; a hit makes a block the most recent one."""
    kept: OrderedDict[str, None] = OrderedDict()
    hits = 0
    for block in wanted:
        if block in kept:
            hits += 1
            kept.move_to_end(block)
            continue
        if len(kept) == capacity:
            kept.popitem(last=False)
        kept[block] = None
    return hits


def fetch_or_compute(
    tokens: int, bytes_per_token: float, link_bytes_s: float, prefill_tok_s: float
) -> tuple[float, str]:
    """Seconds of the faster way, and its name. The length cancels: only the rates decide."""
    fetch_s = tokens * bytes_per_token / link_bytes_s
    compute_s = tokens / prefill_tok_s
    return (fetch_s, "fetch") if fetch_s < compute_s else (compute_s, "compute")


SOLUTIONS = MappingProxyType({
    "05.1": empty_places,
    "05.2": used_share,
    "05.3": hit_tokens,
    "05.4": blocks_in_use,
    "05.5": lru_hits,
    "05.6": fetch_or_compute,
})  # fmt: skip
