"""Keyword retrieval: BM25 over a few texts, enough for a chain whose documents fit on one screen.

score(q, d) = sum over words w of q: idf(w) * n (k1 + 1) / (n + k1 (1 - b + b |d| / mean |d|)), with
n = occurrences of w in d and idf(w) = ln(1 + (N - df + 0.5) / (df + 0.5)); k1 = 1.2, b = 0.75
(Robertson and Zaragoza 2009, in the form whose idf is never negative).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from turbo_lab.core.errors import UsageError

K1, B = 1.2, 0.75
WORD = re.compile(r"[a-z0-9]+")
LEAST_STEM = 3


def terms(text: str) -> list[str]:
    """Lower-case words with a plain plural or verb ending cut off: ``clocks`` is ``clock``."""
    return [_stem(word) for word in WORD.findall(text.lower())]


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= LEAST_STEM:
            return word[: -len(ending)]
    return word


@dataclass(frozen=True)
class Corpus:
    """Texts that can be searched. Built once; a search costs well below a millisecond a text."""

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse an empty corpus."""
        if not any(terms(text) for text in self.texts):
            raise UsageError("a corpus needs a text with at least one word")

    @cached_property
    def _counts(self) -> tuple[Counter[str], ...]:
        return tuple(Counter(terms(text)) for text in self.texts)

    @cached_property
    def _documents_with(self) -> Counter[str]:
        return Counter(word for counts in self._counts for word in counts)

    @cached_property
    def _mean_length(self) -> float:
        return sum(counts.total() for counts in self._counts) / len(self._counts)

    def scores(self, query: str) -> list[float]:
        """BM25 of every text, in their order; 0.0 where no word is shared."""
        wanted = set(terms(query))
        return [self._score(wanted, counts) for counts in self._counts]

    def _score(self, wanted: set[str], counts: Counter[str]) -> float:
        length = K1 * (1 - B + B * counts.total() / self._mean_length)
        return sum(
            self._idf(word) * counts[word] * (K1 + 1) / (counts[word] + length)
            for word in sorted(wanted)
            if counts[word]
        )

    def _idf(self, word: str) -> float:
        having = self._documents_with[word]
        return math.log(1 + (len(self.texts) - having + 0.5) / (having + 0.5))

    def search(self, query: str, *, count: int = 1) -> list[int]:
        """Indexes of the ``count`` best texts, best first; of equal ones the earlier first."""
        if count < 1:
            raise UsageError(f"count is {count}; it must be at least 1")
        scores = self.scores(query)
        return sorted(range(len(scores)), key=lambda i: -scores[i])[:count]


def corpus_of(texts: Sequence[str]) -> Corpus:
    """A corpus of these texts."""
    return Corpus(tuple(texts))
