"""Prompts: of a known length, and different from each other where caches must not help."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from turbo_lab.core.errors import UsageError
from turbo_lab.workload.request import Request

_SYLLABLES = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "zo")


class Tokenizer(Protocol):
    """What is needed of a tokenizer; Hugging Face's have it."""

    def encode(self, text: str, /, *, add_special_tokens: bool = ...) -> list[int]:
        """Text to token ids."""

    def decode(self, ids: Sequence[int], /) -> str:
        """Token ids to text."""


def word(rng: random.Random) -> str:
    """An invented word of two to four syllables."""
    return "".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(2, 4)))


def words(count: int, *, seed: int) -> str:
    """``count`` invented words; another seed differs from the first word on."""
    rng = random.Random(f"words-{seed}")
    return " ".join(word(rng) for _ in range(count))


def _size_words(request: Request) -> int:
    prompt: Any = request.prompt
    if isinstance(prompt, str):
        return max(1, len(prompt.split()))
    if prompt and isinstance(prompt[0], int):
        return len(prompt)
    return max(1, sum(len(str(m.get("content", "")).split()) for m in prompt))


def warmup_like(requests: Sequence[Request], *, count: int, seed: int = 0) -> list[Request]:
    """``count`` requests of the measured ones' length whose prompts are never measured.

    They differ from every measured prompt from the first word on, so they leave nothing useful in
    the server's prefix cache.
    """
    if count < 0:
        raise UsageError(f"warmup is {count}, it must not be negative")
    measured = {r.prompt_key() for r in requests}
    out: list[Request] = []
    attempt = 0
    while len(out) < count:
        like = requests[len(out) % len(requests)]
        prompt = _other_prompt(like, seed=f"warmup-{seed}-{attempt}")
        candidate = replace(like, prompt=prompt, request_id=f"warmup-{len(out)}")
        attempt += 1
        if candidate.prompt_key() not in measured:
            out.append(candidate)
    return out


def _other_prompt(like: Request, *, seed: str) -> Any:
    rng = random.Random(seed)
    prompt: Any = like.prompt
    if not isinstance(prompt, str) and prompt and isinstance(prompt[0], int):
        low, high = min(prompt), max(prompt)
        shuffled = [rng.randint(low, high) for _ in prompt]
        if shuffled[0] == prompt[0]:
            shuffled[0] = low if prompt[0] != low else high
        return shuffled
    return "Warm-up " + " ".join(word(rng) for _ in range(_size_words(like)))
