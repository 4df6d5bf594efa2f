"""The fixed prompts with checkable answers, and the text that perplexity is measured on.

Both lie under ``data/prompts/`` and were written for this project, in English and Chinese. A needle
prompt names its needle, depth and number of passages; its long text is put together here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from turbo_lab.core import host
from turbo_lab.core.errors import UsageError, did_you_mean

FOLDER = "data/prompts"
KINDS = ("facts", "arithmetic", "copying", "json", "code", "needle", "summarising")
LANGUAGES = ("en", "zh")
RULES = ("contains_any", "number", "copy", "json", "code", "needle", "summary")
Language = Literal["en", "zh"]
_FIELDS = {"id", "kind", "language", "prompt", "rule", "reference", "wrong", "max_tokens"}
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_READ = {"en": "Read the text and answer the question.", "zh": "请阅读下面的文字，然后回答问题。"}


@dataclass(frozen=True)
class QualityPrompt:
    """One prompt: what is asked, how a reply is judged, one reply that passes, one that fails.

    ``rule``: ``type`` (see ``quality_checks``) and its arguments. ``depth``: where the needle lies
    in its context, 0.0 to 1.0; None for the other kinds. ``max_tokens``: bound of the reply.
    """

    id: str
    kind: str
    language: Language
    text: str
    rule: Mapping[str, Any]
    reference: str
    wrong: str
    max_tokens: int
    depth: float | None = None


@dataclass(frozen=True)
class Passage:
    """One paragraph of the project's own text."""

    id: str
    language: Language
    title: str
    text: str


def prompts_folder() -> Path:
    """Where the prompts and passages lie."""
    return host.repository_root() / FOLDER


def load_passages(language: Language | None = None) -> tuple[Passage, ...]:
    """The passages in order, of one language or of both."""
    rows = (Passage(**row) for row in _rows(prompts_folder() / "passages.jsonl"))
    return tuple(p for p in rows if language in (None, p.language))


def document(language: Language, *, passages: int | None = None) -> str:
    """The first ``passages`` passages of a language (all by default) as one text."""
    texts = [p.text for p in load_passages(language)]
    return ("\n\n" if language == "en" else "\n").join(texts[:passages])


def load_prompts(
    kinds: Sequence[str] = KINDS, *, language: Language | None = None, per_kind: int | None = None
) -> tuple[QualityPrompt, ...]:
    """The prompts of these kinds, in the order of the files.

    Args:
        kinds: out of ``KINDS``.
        language: only this one.
        per_kind: at most so many of each kind, spread evenly over its file (so that both languages
            and all depths stay in).

    Raises:
        UsageError: an unknown kind, or a line of a file that breaks the schema (named).
    """
    texts = {name: [p.text for p in load_passages(name)] for name in LANGUAGES}
    out: list[QualityPrompt] = []
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"kind of prompt is {kind!r}.{did_you_mean(kind, list(KINDS))}")
        rows = [_prompt(row, texts) for row in _rows(prompts_folder() / f"{kind}.jsonl")]
        out += _spread([p for p in rows if language in (None, p.language)], per_kind)
    return tuple(out)


def _spread(rows: list[QualityPrompt], count: int | None) -> list[QualityPrompt]:
    if count is None or count >= len(rows):
        return rows
    if count < 1:
        raise UsageError(f"per_kind is {count}; it must be at least 1")
    step = (len(rows) - 1) / max(1, count - 1)
    return [rows[round(i * step)] for i in range(count)]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise UsageError(f"{path.name} line {number} is not JSON: {error}") from error


def _prompt(row: Mapping[str, Any], texts: Mapping[str, Sequence[str]]) -> QualityPrompt:
    missing, unknown = _FIELDS - row.keys(), row.keys() - _FIELDS - {"context"}
    if missing or unknown:
        raise UsageError(
            f"prompt {row.get('id')!r}: missing {sorted(missing)}, unknown {sorted(unknown)}"
        )
    for name, allowed in (("kind", KINDS), ("language", LANGUAGES)):
        if row[name] not in allowed:
            raise UsageError(
                f"prompt {row['id']}: {name} {row[name]!r}.{did_you_mean(row[name], list(allowed))}"
            )
    if row["rule"].get("type") not in RULES:
        raise UsageError(f"prompt {row['id']}: rule {row['rule']}; types: {', '.join(RULES)}")
    context = row.get("context")
    text = row["prompt"]
    if context:
        text = _with_context(text, context, row["language"], texts[row["language"]])
    return QualityPrompt(
        id=row["id"], kind=row["kind"], language=row["language"], text=text, rule=row["rule"],
        reference=row["reference"], wrong=row["wrong"], max_tokens=row["max_tokens"],
        depth=context["depth"] if context else None,
    )  # fmt: skip


def _with_context(
    question: str, context: Mapping[str, Any], language: str, passages: Sequence[str]
) -> str:
    """The needle between whole sentences of the first passages, at the asked depth."""
    count = context["passages"]
    if not 1 <= count <= len(passages):
        raise UsageError(f"context of {count} passages; there are {len(passages)} in {language}")
    gap = " " if language == "en" else ""
    sentences = [s for s in _SENTENCE.split(gap.join(passages[:count])) if s]
    place = round(context["depth"] * len(sentences))
    sentences.insert(place, context["needle"])
    return f"{_READ[language]}\n\n{gap.join(sentences)}\n\n{question}"
