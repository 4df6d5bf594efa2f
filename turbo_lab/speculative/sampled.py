"""Sampled replies over a few words, so that what speculation must not change can be counted.

The engine may choose among ``WORDS`` only. The prompt has every pair of them many times, so n-gram
lookup has a guess in every step, and most guesses are wrong: rejection is what is put to the test.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.metrics.definitions import outcome
from turbo_lab.speculative.tokens import chat_tokens, text_tokens
from turbo_lab.workload.request import Request

WORDS = (" red", " green", " blue")
ASK = "Continue this list of colours:"
SHOWN = 40  # colours in the prompt
TOKENS = 4  # of a reply; the first comes from the prompt's own step and is never a guess


def sample_requests(server: Any, *, count: int, seed: int) -> list[Request]:
    """``count`` requests for the same prompt at temperature 1, each with a seed of its own."""
    ids = [text_tokens(server, word)[0] for word in WORDS]
    rng = random.Random(f"colours-{SHOWN}")
    prompt = [*chat_tokens(server, ASK), *rng.choices(ids, k=SHOWN)]
    return [
        Request(
            prompt, model=server.model_name, endpoint="completions", max_tokens=TOKENS,
            temperature=1.0, request_id=f"sample-{seed + i}",
            extra={"ignore_eos": True, "allowed_token_ids": ids, "seed": seed + i},
        )
        for i in range(count)
    ]  # fmt: skip


def sample(server: Any, *, count: int, seed: int, concurrency: int = 16) -> dict[str, int]:
    """How often each reply came. Raises UnmeasuredError when a request failed."""
    asked = sample_requests(server, count=count, seed=seed)
    runs = run_closed_loop(asked, base_url=server.base_url, concurrency=concurrency)
    bad = [outcome(t).reason for t in runs if not outcome(t).ok]
    if bad:
        raise UnmeasuredError(f"{len(bad)} of {count} samples failed: {bad[0]}")
    return dict(sorted(Counter((t.text or "").strip() for t in runs).items()))


def at_place(counts: dict[str, int], place: int) -> dict[str, int]:
    """Counts of the single word at one place (0 is the first) of these replies."""
    found: Counter[str] = Counter()
    for reply, count in counts.items():
        found[reply.split()[place]] += count
    return dict(sorted(found.items()))


def shares(counts: dict[str, int], words: Sequence[str]) -> list[float]:
    """Share of each word, in the given order."""
    total = sum(counts.values())
    return [counts.get(word, 0) / total for word in words]
