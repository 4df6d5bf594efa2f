"""The quality table of notebook 07: one model, many caches, the same text and the same prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.experiment.quality_logits import TokenScores
from turbo_lab.experiment.quality_prompts import KINDS, QualityPrompt, document, load_prompts
from turbo_lab.experiment.quality_subject import (
    CHUNK_TOKENS,
    ReferenceText,
    Reply,
    Subject,
    greedy_replies,
    own_scores,
    reference_text,
    score_text,
)
from turbo_lab.experiment.quality_table import (
    QualityRow,
    needle_difference,
    reply_quality,
    text_quality,
)
from turbo_lab.precision.eviction import EvictingCache
from turbo_lab.precision.eviction_rule import Eviction
from turbo_lab.precision.kv_cache import plain_cache_bytes, quantized_cache
from turbo_lab.precision.kv_cache_kinds import CacheKind, cache_kinds

OTHER_KINDS = tuple(kind for kind in KINDS if kind != "needle")
SIZES: dict[str, dict[str, Any]] = {  # passages of each language, prompts per kind, needles
    "smoke": {"passages": (2, 1), "per_kind": 1, "needles": 0},
    "quick": {"passages": (6, 1), "per_kind": 0, "needles": 5},
    "full": {"passages": (16, 8), "per_kind": None, "needles": None},
}
ASKED_AT_QUICK = ("fp8 e5m2", "int4, K per token", "int4, K per channel", "window of 256")


def study_prompts(effort: str) -> tuple[QualityPrompt, ...]:
    """The prompts of one effort; the first needles are the shortest ones, at five depths."""
    size = _size(effort)
    needles = load_prompts(["needle"])[: size["needles"]]
    others = () if size["per_kind"] == 0 else load_prompts(OTHER_KINDS, per_kind=size["per_kind"])
    return (*others, *needles)


def _size(effort: str) -> dict[str, Any]:
    if effort not in SIZES:
        raise UsageError(f"effort is {effort!r}.{did_you_mean(effort, list(SIZES))}")
    return SIZES[effort]


def new_cache(config: Any, kind: CacheKind) -> Any:
    """An empty cache of this kind for a model's config."""
    if isinstance(kind, Eviction):
        return EvictingCache(config, kind)
    return quantized_cache(config, kind)


@dataclass(frozen=True)
class Workload:
    """What every cache is asked: the same texts and the same prompts, and the reference's side."""

    subject: Subject
    text: ReferenceText
    scores: TokenScores
    prompts: tuple[QualityPrompt, ...]
    replies: tuple[Reply, ...]
    reference_bytes: int


def prepare(
    subject: Subject, *, effort: str = "quick", prompts: Sequence[QualityPrompt] | None = None
) -> Workload:
    """Run the reference (a DynamicCache in the model's own dtype) over texts and prompts.

    Args:
        subject: the model; its own cache is the reference.
        effort: smoke, quick or full: how much text, how many prompts.
        prompts: these instead of the effort's.

    Raises:
        UsageError: an unknown effort.
    """
    english, chinese = _size(effort)["passages"]
    texts = (document("en", passages=english), document("zh", passages=chinese))
    plain, log = _logged(subject, subject.new_cache)
    text = reference_text(plain, texts)
    asked = tuple(prompts) if prompts is not None else study_prompts(effort)
    return Workload(
        subject=subject,
        text=text,
        scores=own_scores(text),
        prompts=asked,
        replies=greedy_replies(subject, asked, prefill_tokens=CHUNK_TOKENS),
        reference_bytes=sum(plain_cache_bytes(cache) for cache in log),
    )


def _logged(subject: Subject, make: Callable[[], Any]) -> tuple[Subject, list[Any]]:
    """The subject with a cache maker that also keeps what it made."""
    log: list[Any] = []

    def made() -> Any:
        log.append(make())
        return log[-1]

    return subject.with_cache(subject.name, made), log


def measure_cache(work: Workload, name: str, kind: CacheKind, *, ask: bool = True) -> QualityRow:
    """One row of the table. Without ``ask`` the prompts are left out (much shorter).

    ``stored_bytes`` is what the caches hold at the end of the texts, counted from their tensors.
    """
    subject = work.subject.with_cache(name, lambda: new_cache(work.subject.model.config, kind))
    logged, log = _logged(subject, subject.new_cache)
    text = text_quality(work.scores, score_text(logged, work.text))
    stored = sum(cache.stored_bytes for cache in log)
    facts: dict[str, Any] = {
        "name": name, "text": text, "stored_bytes": stored,
        "reference_bytes": work.reference_bytes,
    }  # fmt: skip
    if not ask or len(work.prompts) < 5:
        return QualityRow(**facts)
    replies = greedy_replies(subject, work.prompts, prefill_tokens=CHUNK_TOKENS)
    return QualityRow(
        **facts,
        replies=reply_quality(work.prompts, work.replies, replies),
        needle=needle_difference(work.prompts, work.replies, replies),
    )


def measure_caches(
    work: Workload,
    kinds: Mapping[str, CacheKind] | None = None,
    *,
    ask: Sequence[str] | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> list[QualityRow]:
    """The whole table, about 8 core-seconds a row at quick and as much again for its replies.

    ``ask`` names the caches that also answer the prompts (default: all; ``ASKED_AT_QUICK``).
    """
    rows = []
    for name, kind in (kinds if kinds is not None else cache_kinds()).items():
        report(f"  {name}")
        rows.append(measure_cache(work, name, kind, ask=ask is None or name in ask))
    return rows
