"""Counting over many records: what they state, what a few of them foretell, what they claim."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from types import MappingProxyType

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.papers.audit import MISSING, audit
from turbo_lab.papers.schema import PaperRecord

CONDITIONS = tuple(MISSING)
QUESTIONS = ("usable_now", "not_now", "testable_small", "needs_purchase")
# How the baselines of a paper are spelt; "Triton" alone is the kernel language, not the server.
ENGINES = MappingProxyType({
    "vLLM": ("vllm",),
    "SGLang": ("sglang",),
    "TensorRT-LLM": ("tensorrt-llm",),
    "TGI": ("tgi", "text generation inference", "text-generation-inference"),
    "Triton Inference Server": ("triton inference server", "triton server"),
})  # fmt: skip
# "2.2-3.6x", "36.9x", "1.5x-14.5x"; not "8xA40" and not "4x4".
_FACTOR = re.compile(r"(?<![\w.])(?:\d+(?:\.\d+)?\s?-\s?)?(\d+(?:\.\d+)?)x(?![\w])")


def stated_counts(records: Sequence[PaperRecord]) -> dict[str, int]:
    """Records that state each of the six conditions."""
    return {name: sum(getattr(one.conditions, name) for one in records) for name in CONDITIONS}


def answered_counts(records: Sequence[PaperRecord]) -> dict[str, int]:
    """Records that have an answer to each question of transfer."""
    return {name: sum(getattr(r.transfer, name) is not None for r in records) for name in QUESTIONS}


def transfer_rows(records: Sequence[PaperRecord]) -> dict[str, dict[str, int]]:
    """Per question of transfer: records that answer it, and their maintenance cost."""
    rows = {}
    for question in QUESTIONS:
        levels = [r.upkeep.level for r in records if getattr(r.transfer, question) is not None]
        costs = {f"upkeep {level}": levels.count(level) for level in ("low", "medium", "high")}
        rows[question] = {"records": len(levels), **costs}
    return rows


def missing_count(record: PaperRecord) -> int:
    """How many of the six conditions the record does not state."""
    return len(audit(record).missing)


def whole_band(hits: int, *, read: int, of: int, confidence: float = 0.95) -> tuple[int, int]:
    """How many of ``of`` records may have a property that ``hits`` of ``read`` drawn ones have.

    All totals under which the draw is not too unlikely: both tails of the hypergeometric
    distribution are at least ``(1 - confidence) / 2``. Exact (Clopper-Pearson for a finite whole).
    Raises UsageError for counts that cannot be.
    """
    if not 0 <= hits <= read <= of or read < 1 or not 0 < confidence < 1:
        raise UsageError(
            f"{hits} hits in {read} of {of} at confidence {confidence}: 0 <= hits <= read <= of, "
            "at least one read, confidence between 0 and 1"
        )
    tail = (1 - confidence) / 2

    def chance(found: int, total: int) -> float:
        return comb(total, found) * comb(of - total, read - found) / comb(of, read)

    fitting = [
        total
        for total in range(hits, of - (read - hits) + 1)
        if sum(chance(k, total) for k in range(hits + 1)) >= tail
        and sum(chance(k, total) for k in range(hits, read + 1)) >= tail
    ]
    return fitting[0], fitting[-1]


@dataclass(frozen=True)
class Headline:
    """The largest factor a record reports. ``against``: kind of its baseline, None if not told."""

    paper: str
    name: str
    factor: float
    what: str
    against: str | None
    missing: int


def factors(text: str) -> tuple[float, ...]:
    """All factors written as such (``2.6x``; of a range the upper end), in order.

    Percentages and pairs of values are not turned into factors.
    """
    return tuple(float(found) for found in _FACTOR.findall(text))


def headlines(records: Sequence[PaperRecord]) -> tuple[Headline, ...]:
    """One per record that reports a factor above 1: its largest. The others are left out."""
    out = []
    for one in records:
        told = [
            (factor, claim)
            for claim in one.claims
            for factor in factors(claim.number or "")
            if factor > 1
        ]
        if told:
            factor, claim = max(told, key=lambda pair: pair[0])
            out.append(Headline(one.id, one.short_name, factor, claim.what, claim.against,
                                missing_count(one)))  # fmt: skip
    return tuple(out)


def median_factor(found: Sequence[Headline], *, against: str) -> float:
    """Median headline over one kind of baseline. Raises UnmeasuredError where there is none."""
    values = [one.factor for one in found if one.against == against]
    if not values:
        raise UnmeasuredError(f"no record has a factor against {against!r}")
    return statistics.median(values)


def rank_correlation(found: Sequence[Headline]) -> float:
    """Spearman's rank correlation of missing conditions and headline factor, -1 to 1.

    Ties get mean ranks. Raises UnmeasuredError where nothing varies or fewer than three are left.
    """
    from scipy.stats import spearmanr

    missing, sizes = [one.missing for one in found], [one.factor for one in found]
    if len(found) < 3 or len(set(missing)) == 1 or len(set(sizes)) == 1:
        raise UnmeasuredError(f"{len(found)} headlines without spread have no rank correlation")
    return float(spearmanr(missing, sizes).statistic)


def chance_correlation(count: int) -> float:
    """The rank correlation that ``count`` unrelated pairs stay below in 95 of 100 draws.

    ``1.96 / sqrt(n - 1)``, the large-sample law of Spearman's coefficient.
    """
    if count < 3:
        raise UsageError(f"{count} pairs; at least three are needed")
    return 1.96 / (count - 1) ** 0.5


def engines_compared(records: Sequence[PaperRecord]) -> dict[str, int]:
    """Records that name each serving engine among their baselines."""
    texts = [(one.setting.baselines or "").lower() for one in records]

    def named(spellings: Sequence[str]) -> int:
        wanted = re.compile(r"\b(" + "|".join(map(re.escape, spellings)) + r")\b")
        return sum(wanted.search(text) is not None for text in texts)

    return {engine: named(spellings) for engine, spellings in ENGINES.items()}


def share_with_layer(records: Sequence[PaperRecord], layer: str) -> float:
    """Share of the records that work on this layer. Raises UnmeasuredError without records."""
    if not records:
        raise UnmeasuredError("there are no records to take a share of")
    return sum(layer in one.layers for one in records) / len(records)


@dataclass(frozen=True)
class ConditionMatrix:
    """Which record lacks what. ``flags[row][i]`` belongs to ``papers[i]``, fewest gaps first.

    ``papers`` are names without their additions (``FlexGen``, not ``FlexGen (ICML)``).
    """

    papers: tuple[str, ...]
    flags: Mapping[str, tuple[bool, ...]]
    conditions: int

    @property
    def missing(self) -> tuple[int, ...]:
        """Missing conditions per record."""
        rows = list(self.flags.values())[: self.conditions]
        return tuple(sum(column) for column in zip(*rows, strict=True))


def condition_matrix(records: Sequence[PaperRecord], *, least: int = 5) -> ConditionMatrix:
    """Six rows of missing conditions, then the traps that at least ``least`` records stand in."""
    audits = sorted(
        ((audit(one), one) for one in records), key=lambda p: (len(p[0].missing), p[1].short_name)
    )
    flags = {
        f"no {name}": tuple(f"missing_{name}" in found.missing for found, _ in audits)
        for name in CONDITIONS
    }
    for trap in dict.fromkeys(t for found, _ in audits for t in found.traps):
        row = tuple(trap in found.traps for found, _ in audits)
        if sum(row) >= least:
            flags[trap.replace("_", " ")] = row
    names = tuple(re.split(r" / | \(|/", one.short_name)[0] for _, one in audits)
    return ConditionMatrix(names, flags, len(CONDITIONS))
