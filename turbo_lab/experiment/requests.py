"""The requests of a run: words of the wanted lengths, put together as the workload says."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from turbo_lab.client.load import Item
from turbo_lab.core.errors import UsageError
from turbo_lab.experiment.plan import BenchPlan
from turbo_lab.experiment.preflight import Dialect
from turbo_lab.workload.conversation import Conversation
from turbo_lab.workload.prompts import Tokenizer, exact_text, words
from turbo_lab.workload.request import Request
from turbo_lab.workload.shape import Slot


@dataclass(frozen=True)
class TextMaker:
    """Invented texts of a length in tokens: exact with a tokenizer, else by the server's counts."""

    dialect: Dialect
    tokenizer: Tokenizer | None

    def text(self, tokens: float, *, seed: int, start: str = "") -> str:
        """Words that, with ``start`` before them, have this many tokens (at least one word)."""
        asked = max(1, round(tokens))
        if self.tokenizer is not None:
            return exact_text(self.tokenizer, tokens=asked, seed=seed, start=start)
        count = max(1, round(asked / (self.dialect.tokens_per_word or 1.0)))
        if not start:
            return words(count, seed=seed)
        return f"{start} {words(max(1, count - len(start.split())), seed=seed)}"


def build_requests(plan: BenchPlan, *, dialect: Dialect, tokenizer: Tokenizer | None) -> list[Item]:
    """The measured requests, or conversations of them, numbered through as ``r00000`` ...

    Prompts differ from the first word on, but for the beginning that the workload shares.
    """
    maker, prefixes = TextMaker(dialect, tokenizer), dict[str, str]()
    made = [
        _request(plan, index, slot, _prompt(plan, index, slot, maker, prefixes), dialect)
        for index, slot in enumerate(plan.slots())
    ]
    turns = plan.workload.turns
    if turns == 1:
        return list(made)
    return [
        Conversation(tuple(made[i : i + turns]), think_s=plan.workload.think_s)
        for i in range(0, len(made), turns)
    ]


def _prompt(
    plan: BenchPlan, index: int, slot: Slot, maker: TextMaker, prefixes: dict[str, str]
) -> str:
    if plan.workload.texts:
        return plan.workload.texts[index]
    later = index % plan.workload.turns > 0
    around = maker.dialect.turn_tokens if later else maker.dialect.template_tokens
    asked = slot.input_tokens - (around or 0.0)
    start = ""
    if slot.prefix is not None and slot.prefix_tokens:
        start = prefixes.get(slot.prefix) or maker.text(
            slot.prefix_tokens, seed=hash_seed(plan.seed, plan.prompt_salt, slot.prefix, "prefix")
        )
        prefixes[slot.prefix] = start
    try:
        return maker.text(asked, seed=hash_seed(plan.seed, plan.prompt_salt, index), start=start)
    except UsageError as error:
        raise UsageError(
            f"request {index}: {error}. Of its {slot.input_tokens} input tokens the chat template "
            f"takes {around or 0:g} and the prefix {slot.prefix_tokens}"
        ) from error


def _request(plan: BenchPlan, index: int, slot: Slot, prompt: str, dialect: Dialect) -> Request:
    return Request(
        prompt,
        model=plan.model,
        max_tokens=slot.output_tokens,
        endpoint=plan.endpoint,  # type: ignore[arg-type]
        request_id=f"r{index:05d}",
        usage=dialect.usage,
        extra=dialect.extra,
        labels=slot.labels,
    )


def require_context(plan: BenchPlan, *, context_tokens: int | None) -> None:
    """Raise UsageError where a request would not fit into the model's context (None: unknown)."""
    if context_tokens is None or plan.workload.texts:
        return  # Given texts are counted by the server alone, and it refuses what does not fit.
    totals = _totals(plan.slots(), plan.workload.turns)
    worst = max(range(len(totals)), key=totals.__getitem__)
    if totals[worst] > context_tokens:
        raise UsageError(
            f"request {worst} asks for {totals[worst]:,} tokens of prompt and reply together, and "
            f"the server's context is {context_tokens:,}. Ask for shorter prompts or replies"
            + (", or a trace without such rows" if plan.workload.trace else "")
        )


def _totals(slots: Sequence[Slot], turns: int) -> list[int]:
    """Tokens of prompt and reply of each request; a later turn holds those before it."""
    out: list[int] = []
    for index, slot in enumerate(slots):
        before = out[-1] if index % turns else 0
        out.append(before + slot.input_tokens + slot.output_tokens)
    return out


def hash_seed(*parts: int | str) -> int:
    """One seed out of several numbers and words."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6], "big")
