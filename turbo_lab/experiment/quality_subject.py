"""A model in this process whose quality is measured: chunked text scores and greedy replies.

Text is fed in chunks through the cache, so that a cache that keeps less shows its error: one single
pass over the text would let many caches hand back what was never stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import MissingDependencyError, UsageError
from turbo_lab.experiment.quality_logits import EMPTY, TokenScores, token_scores
from turbo_lab.experiment.quality_prompts import QualityPrompt

CHUNK_TOKENS = 32


@dataclass(frozen=True)
class Subject:
    """A model with one cache: the thing that is compared.

    ``make_cache`` gives a new empty cache for each text (default: transformers' DynamicCache). A
    cache may have ``attached(model)``, a context manager that is entered around every pass.
    """

    name: str
    model: Any
    tokenizer: Any
    make_cache: Callable[[], Any] | None = None

    def with_cache(self, name: str, make_cache: Callable[[], Any] | None) -> Subject:
        """The same model with another cache."""
        return Subject(name, self.model, self.tokenizer, make_cache)

    def new_cache(self) -> Any:
        """A new empty cache."""
        from transformers import DynamicCache

        return self.make_cache() if self.make_cache else DynamicCache(config=self.model.config)

    def encode(self, text: str) -> Any:
        """Token ids of plain text, tensor [tokens] on the model's device."""
        ids = self.tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        return ids[0].to(self.model.device)

    def forward(self, ids: Any, cache: Any, *, last_only: bool = False) -> Any:
        """Logits [tokens, vocabulary] of new tokens [tokens] behind what the cache holds."""
        import torch

        keep = 1 if last_only else 0
        attached = getattr(cache, "attached", None)
        around = attached(self.model) if attached else contextlib.nullcontext()
        with torch.inference_mode(), around:
            out = self.model(ids[None], past_key_values=cache, use_cache=True, logits_to_keep=keep)
        return out.logits[0]

    def chunks(self, ids: Any, cache: Any, *, chunk_tokens: int) -> Iterator[tuple[int, Any]]:
        """Start and logits of each chunk of ``ids``, fed one after the other."""
        for start in range(0, len(ids), chunk_tokens):
            yield start, self.forward(ids[start : start + chunk_tokens], cache)


def load_subject(folder: str, *, name: str = "reference", dtype: str = "float32") -> Subject:
    """A causal language model and its tokenizer from a local folder, for inference.

    Raises MissingDependencyError without torch and transformers.
    """
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise MissingDependencyError("transformers", needed_for="quality of a model") from error
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    return Subject(name, model.eval(), AutoTokenizer.from_pretrained(folder))


@dataclass(frozen=True)
class ReferenceText:
    """Texts as token ids with the reference's own logits (4 bytes * vocabulary per token)."""

    name: str
    ids: tuple[Any, ...]
    logits: tuple[Any, ...]
    chunk_tokens: int

    @property
    def scored_tokens(self) -> int:
        """Tokens with a prediction: all but the first of each text."""
        return sum(len(ids) - 1 for ids in self.ids)


def reference_text(
    subject: Subject,
    texts: Sequence[str],
    *,
    chunk_tokens: int = CHUNK_TOKENS,
    max_tokens: int | None = None,
) -> ReferenceText:
    """The reference's logits over each text, cut to ``max_tokens`` tokens."""
    import torch

    if chunk_tokens < 1:
        raise UsageError(f"chunk_tokens is {chunk_tokens}; it must be at least 1")
    ids = tuple(subject.encode(text)[:max_tokens] for text in texts)
    if short := [i for i, t in enumerate(ids) if len(t) < 2]:
        raise UsageError(f"text {short[0]} has fewer than two tokens; nothing can be scored")
    logits = tuple(
        torch.cat([x for _, x in subject.chunks(t, subject.new_cache(), chunk_tokens=chunk_tokens)])
        for t in ids
    )
    return ReferenceText(subject.name, ids, logits, chunk_tokens)


def own_scores(reference: ReferenceText) -> TokenScores:
    """The reference's scores of its own text, from the logits that it left: no second pass."""
    total = EMPTY
    for ids, logits in zip(reference.ids, reference.logits, strict=True):
        for start in range(0, len(ids) - 1, reference.chunk_tokens):
            targets = ids[start + 1 : start + 1 + reference.chunk_tokens]
            rows = logits[start : start + len(targets)]
            total += token_scores(rows, reference=rows, targets=targets)
    return total


def score_text(subject: Subject, reference: ReferenceText) -> TokenScores:
    """Scores of every token but the first of each text, in order; equal chunks on both sides."""
    total = EMPTY
    for ids, wanted in zip(reference.ids, reference.logits, strict=True):
        step = reference.chunk_tokens
        for start, logits in subject.chunks(ids, subject.new_cache(), chunk_tokens=step):
            targets = ids[start + 1 : start + 1 + len(logits)]
            rows = slice(start, start + len(targets))
            if len(targets):
                total += token_scores(
                    logits[: len(targets)], reference=wanted[rows], targets=targets
                )
    return total


@dataclass(frozen=True)
class Reply:
    """A greedy reply to one prompt: token ids (None from a server), its text."""

    prompt_id: str
    tokens: tuple[int, ...] | None
    text: str


def greedy_reply(
    subject: Subject, prompt: QualityPrompt, *, prefill_tokens: int | None = None
) -> Reply:
    """Greedy decoding in chat format, through the subject's cache, token by token.

    Args:
        subject: model, tokenizer, cache.
        prompt: what is asked; its ``max_tokens`` bounds the reply.
        prefill_tokens: size of the chunks that the prompt is fed in (None: at once).
    """
    message = [{"role": "user", "content": prompt.text}]
    text = subject.tokenizer.apply_chat_template(
        message, tokenize=False, add_generation_prompt=True
    )
    ids, cache = subject.encode(text), subject.new_cache()
    step = prefill_tokens or len(ids)
    for start in range(0, len(ids), step):
        logits = subject.forward(ids[start : start + step], cache, last_only=True)
    out: list[int] = []
    stops = _stop_ids(subject)
    for _ in range(prompt.max_tokens):
        token = logits[-1].argmax()
        if int(token) in stops:
            break
        out.append(int(token))
        if len(out) < prompt.max_tokens:
            logits = subject.forward(token[None], cache, last_only=True)
    return Reply(prompt.id, tuple(out), subject.tokenizer.decode(out))


def greedy_replies(
    subject: Subject, prompts: Sequence[QualityPrompt], *, prefill_tokens: int | None = None
) -> tuple[Reply, ...]:
    """One reply for each prompt, each with a new cache."""
    return tuple(greedy_reply(subject, p, prefill_tokens=prefill_tokens) for p in prompts)


def _stop_ids(subject: Subject) -> set[int]:
    stop = subject.model.generation_config.eos_token_id
    found = set(stop) if isinstance(stop, list) else {stop}
    return {i for i in found | {subject.tokenizer.eos_token_id} if i is not None}
