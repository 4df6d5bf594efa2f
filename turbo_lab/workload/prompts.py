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


def token_count(tokenizer: Tokenizer, text: str) -> int:
    """Tokens of ``text`` without special tokens."""
    return len(tokenizer.encode(text, add_special_tokens=False))


def exact_text(tokenizer: Tokenizer, *, tokens: int, seed: int, start: str = "") -> str:
    """Invented words that this tokenizer turns into exactly ``tokens`` tokens.

    ``start`` begins the text and counts. A chat template adds its own tokens on top; the server's
    ``usage.prompt_tokens`` has the sum.

    Raises:
        UsageError: no such text was found (a tokenizer without short tokens, a start too long).
    """
    if tokens < 1:
        raise UsageError(f"tokens is {tokens}, it must be at least 1")
    if start and (used := token_count(tokenizer, start)) >= tokens:
        raise UsageError(f"the start has {used} tokens already, and {tokens} were asked for")
    for attempt in range(20):
        text = _fill(tokenizer, tokens, random.Random(f"exact-{seed}-{attempt}"), start)
        if text is not None:
            return text
    raise UsageError(
        f"found no text of exactly {tokens} tokens for this tokenizer; "
        "use token_id_prompts with endpoint='completions' instead"
    )


def _fill(tokenizer: Tokenizer, tokens: int, rng: random.Random, start: str) -> str | None:
    """Whole words while they surely fit, then single letters and short words up to the mark."""
    parts = start.split(" ") if start else [word(rng)]
    least = len(parts)
    size = token_count(tokenizer, " ".join(parts))
    for _ in range(MAX_STEPS):  # Each adds about what is missing, so long prompts stay cheap.
        missing = tokens - size
        if missing <= 0:
            break
        more = [word(rng) for _ in range(max(1, int(missing * len(parts) / max(1, size))))]
        grown, size = _shrunk(tokenizer, [*parts, *more], tokens, least)
        if len(grown) <= len(parts):
            break
        parts = grown
    parts, _ = _shrunk(tokenizer, parts, tokens, least)
    return _top_up(tokenizer, " ".join(parts), tokens, rng)


def _shrunk(
    tokenizer: Tokenizer, parts: list[str], tokens: int, least: int
) -> tuple[list[str], int]:
    """Drop words from the end until the text fits; the first ``least`` stay."""
    size = token_count(tokenizer, " ".join(parts))
    while size > tokens and len(parts) > least:
        surplus = max(1, int((size - tokens) * len(parts) / size))
        parts = parts[: max(least, len(parts) - surplus)]
        size = token_count(tokenizer, " ".join(parts))
    return parts, size


MAX_STEPS = 30
_SHORT = (" a", " the", " of", ".", ",", " I", "a", "e", "!", " is", " 1", "7")


def _top_up(tokenizer: Tokenizer, text: str, tokens: int, rng: random.Random) -> str | None:
    """Add pieces that cost one token each until the count is exact."""
    size = token_count(tokenizer, text)
    if size > tokens:
        text, size = "", 0
    while size < tokens:
        for piece in rng.sample(_SHORT, len(_SHORT)):
            grown = token_count(tokenizer, text + piece)
            if size < grown <= tokens:
                text, size = text + piece, grown
                break
        else:
            return None
    return text


def token_id_prompts(
    count: int, *, tokens: int, vocab_size: int, seed: int, avoid: Sequence[int] = ()
) -> list[list[int]]:
    """Prompts as token ids: exactly ``tokens`` long by construction (completions endpoint).

    Different from each other with the first id on where the vocabulary allows. ``avoid`` names
    special ids (end of text, padding).
    """
    allowed = sorted(set(range(vocab_size)) - set(avoid))
    if count < 1 or tokens < 1 or not allowed:
        raise UsageError(f"count={count}, tokens={tokens} and the vocabulary must be positive")
    rng = random.Random(f"ids-{seed}")
    firsts = rng.sample(allowed, min(count, len(allowed)))
    return [[firsts[i % len(firsts)], *rng.choices(allowed, k=tokens - 1)] for i in range(count)]


def shared_prefix_prompts(
    groups: int,
    *,
    per_group: int,
    prefix_tokens: int,
    suffix_tokens: int,
    vocab_size: int,
    seed: int,
    avoid: Sequence[int] = (),
) -> list[list[int]]:
    """``groups`` tenants, each with one prefix that its ``per_group`` prompts share, as token ids.

    In the order group 0, 1, ..., 0, 1, ...: neighbours never share, so a cache must hold all.
    """
    facts = {"vocab_size": vocab_size, "avoid": avoid}
    prefixes = token_id_prompts(groups, tokens=prefix_tokens, seed=seed, **facts)
    suffixes = token_id_prompts(groups * per_group, tokens=suffix_tokens, seed=seed + 1, **facts)
    return [[*prefixes[i % groups], *suffix] for i, suffix in enumerate(suffixes)]
