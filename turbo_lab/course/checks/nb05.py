"""Exercises of notebook 05: where the blocks go."""

from __future__ import annotations

from collections import Counter
from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case

A, B = list(range(8)), [100, *range(1, 8)]  # differ in the first token alone
CYCLE = ["a", "b", "c"] * 3


def _full_block_for_nothing(stored: list[int], block: int) -> int:
    return sum(block - tokens % block for tokens in stored)


def _all_together(stored: list[int], block: int) -> int:
    return -sum(stored) % block


def _plain_mean(requests: list[tuple[int, int]], slab: int) -> float:
    used = [prompt + (reply - 1) / 2 for prompt, reply in requests]
    return sum(used) / len(used) / slab


def _at_the_end(requests: list[tuple[int, int]], slab: int) -> float:
    steps = sum(reply for _, reply in requests)
    return sum(reply * (prompt + reply - 1) for prompt, reply in requests) / (steps * slab)


def _one_too_many(requests: list[tuple[int, int]], slab: int) -> float:
    steps = sum(reply for _, reply in requests)
    return sum(reply * (prompt + reply / 2) for prompt, reply in requests) / (steps * slab)


def _any_place(prompts: list[list[int]], block: int) -> int:
    chunks: set[tuple[int, ...]] = set()
    for prompt in prompts:
        chunks |= {tuple(prompt[i : i + block]) for i in range(0, len(prompt), block)}
    return len(chunks)


def _own_only(prompts: list[list[int]], block: int) -> int:
    return sum(-(-len(prompt) // block) for prompt in prompts)


def _partial_shared(prompts: list[list[int]], block: int) -> int:
    ends = {tuple(p[: i + block]) for p in prompts for i in range(0, len(p), block)}
    return len(ends)


def _full_only(prompts: list[list[int]], block: int) -> int:
    return len({tuple(p[: (i + 1) * block]) for p in prompts for i in range(len(p) // block)})


def _fifo(wanted: list[str], capacity: int) -> int:
    kept: list[str] = []
    hits = 0
    for block in wanted:
        if block in kept:
            hits += 1
            continue
        kept = [*kept, block][-capacity:]
    return hits


def _never_full(wanted: list[str], capacity: int) -> int:
    return sum(count - 1 for count in Counter(wanted).values())


def _keeps_the_oldest(wanted: list[str], capacity: int) -> int:
    kept: list[str] = []
    hits = 0
    for block in wanted:
        hits += block in kept
        if block not in kept and len(kept) < capacity:
            kept.append(block)
    return hits


def _more_room_never_hurts(answer: Any) -> str | None:
    """A larger pool must not find less."""
    found = [answer(["a", "b", "c", "a", "d", "b", "a", "c"], n) for n in range(1, 6)]
    return None if found == sorted(found) else "A larger pool finds less: that is not LRU."


EXERCISES = (
    Exercise(
        id="05.1",
        task="Empty places in the last blocks: empty_places(stored_tokens, block_tokens), one "
        "length per request",
        cases=(
            case([1], 16, gives=15),
            case([16, 32], 16, gives=0, hint="A length that fits exactly wastes nothing."),
            case([17, 100, 128], 128, gives=111 + 28),
            case([5, 6, 7], 1, gives=0, hint="Blocks of one token waste nothing."),
            case([], 16, gives=0),
        ),
        mistakes=(
            Mistake("A full last block is not followed by an empty one.", _full_block_for_nothing),
            Mistake("Requests do not share a last block: round each one.", _all_together),
        ),
    ),
    Exercise(
        id="05.2",
        task="Used share of slabs, averaged over time: used_share(requests, slab_tokens), requests "
        "are (prompt, reply)",
        cases=(
            case([(100, 1)], 200, gives=0.5),
            case([(99, 3)], 200, gives=0.5, hint="It holds 99, 100, 101 tokens."),
            case([(10, 1), (50, 99)], 100, gives=(10 + 99 * 99) / (100 * 100),
                 hint="The second one is there 99 times as long."),
            case([(1024, 512)], 16384, gives=(1024 + 255.5) / 16384),
        ),
        mistakes=(
            Mistake("A long reply stays longer and must count more.", _plain_mean),
            Mistake("That is its size at the end; it grew up to it.", _at_the_end),
            Mistake("The last token of a reply is not stored.", _one_too_many),
        ),
    ),
    Exercise(
        id="05.3",
        task="Tokens found in a prefix cache: hit_tokens(shared_tokens, prompt_tokens, "
        "block_tokens)",
        cases=(
            case(512, 600, 128, gives=512),
            case(600, 640, 128, gives=512, hint="Only whole blocks are found."),
            case(640, 640, 128, gives=512, hint="The last token must be computed again."),
            case(641, 641, 128, gives=640),
            case(100, 100, 128, gives=0, hint="Less than a block is never found."),
            case(0, 640, 128, gives=0),
            case(30, 30, 1, gives=29),
        ),
        mistakes=(
            Mistake("Blocks that are not full are not kept for others.",
                    lambda shared, prompt, block: min(shared, prompt - 1)),
            Mistake("The last token of the prompt is always computed.",
                    lambda shared, prompt, block: min(shared, prompt) // block * block),
            Mistake("The last block need not be computed when only the rest differs.",
                    lambda shared, prompt, block: min(shared, prompt - block) // block * block),
        ),
    ),
    Exercise(
        id="05.4",
        task="Different blocks that running prompts (lists of token ids) hold: "
        "blocks_in_use(prompts, block_tokens)",
        cases=(
            case([A], 4, gives=2),
            case([A, A], 4, gives=2, hint="Equal from the beginning: everything is shared."),
            case([A, A[:6]], 4, gives=3, hint="A block that is not full is nobody else's."),
            case([A, B], 4, gives=4, hint="Another first token: no block is the same."),
            case([[*A[4:], *A[4:]]], 4, gives=2, hint="Equal words, but in another place."),
            case([A[:6], A[:6]], 4, gives=3),
            case([A[:3], B[:3]], 4, gives=2),
        ),
        mistakes=(
            Mistake("Equal beginnings share their blocks.", _own_only),
            Mistake("A block is the same only if everything before it is.", _any_place),
            Mistake("A block that is not full is not shared.", _partial_shared),
            Mistake("Blocks that are not full take a place too.", _full_only),
        ),
    ),
    Exercise(
        id="05.5",
        task="Hits of a pool that forgets the least recently used: lru_hits(wanted, capacity)",
        cases=(
            case(CYCLE, 3, gives=6),
            case(CYCLE, 2, gives=0, hint="In a circle, each comes just after it was forgotten."),
            case(["a", "b", "a", "c", "a", "b"], 2, gives=2, hint="A hit makes it recent."),
            case([], 2, gives=0),
            case(["a", "a", "a"], 1, gives=2),
        ),
        properties=(_more_room_never_hurts,),
        mistakes=(
            Mistake("A hit must move the block to the recent end.", _fifo),
            Mistake("The pool is finite.", _never_full),
            Mistake("When it is full, something old must go.", _keeps_the_oldest),
        ),
    ),
    Exercise(
        id="05.6",
        task="Which way is faster, and how long it takes: fetch_or_compute(tokens, "
        "bytes_per_token, link_bytes_s, prefill_tok_s) gives (seconds, 'fetch' or 'compute')",
        cases=(
            case(1000, 131_072, 25e9, 10_000, gives=(1000 * 131_072 / 25e9, "fetch")),
            case(1000, 46_080, 10e6, 1000, gives=(1.0, "compute")),
            case(10, 46_080, 10e6, 1000, gives=(0.01, "compute"),
                 hint="The length cancels: only the rates decide."),
            case(512, 46_080, 1e9, 1000, gives=(512 * 46_080 / 1e9, "fetch")),
        ),
        mistakes=(
            Mistake("One of the two is enough: take the faster one.",
                    lambda n, b, link, rate: (n * b / link + n / rate, "fetch")),
            Mistake("Keys and values are bytes: divide by bytes per second.",
                    lambda n, b, link, rate: (n / link, "fetch")),
            Mistake("Moving is not always faster than computing.",
                    lambda n, b, link, rate: (n * b / link, "fetch")),
        ),
    ),
)  # fmt: skip
