"""Quality of a candidate against a reference: every metric paired, every difference with interval.

A table row answers: how much worse is the text predicted, how far do the distributions lie apart,
how many replies stay the same, where do the others part, and do the answers still pass?
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import UsageError
from turbo_lab.experiment.quality_checks import passes
from turbo_lab.experiment.quality_logits import TokenScores, first_difference
from turbo_lab.experiment.quality_paired import PairedDifference, paired_difference
from turbo_lab.experiment.quality_prompts import QualityPrompt
from turbo_lab.experiment.quality_subject import Reply

BLOCK_TOKENS = 32


@dataclass(frozen=True)
class TextQuality:
    """Over one text, resampled in blocks of neighbouring tokens.

    Attributes:
        nll: negative log-likelihood in nats per token, reference and candidate.
        kl: KL(reference || candidate) in nats per token; the reference's side is 0.
        other_top: share of tokens whose most likely token is not the reference's.
    """

    nll: PairedDifference
    kl: PairedDifference
    other_top: PairedDifference
    tokens: int

    @property
    def perplexity(self) -> float:
        """``exp(mean nll)`` of the candidate."""
        return math.exp(self.nll.candidate)

    @property
    def perplexity_ratio(self) -> tuple[float, float, float]:
        """Candidate's perplexity over the reference's, with the interval: 1.0 is no difference."""
        return math.exp(self.nll.mean), math.exp(self.nll.low), math.exp(self.nll.high)


def text_quality(
    reference: TokenScores, candidate: TokenScores, *, block_tokens: int = BLOCK_TOKENS
) -> TextQuality:
    """Paired differences over blocks of ``block_tokens`` tokens (neighbours are alike).

    Raises:
        UsageError: scores of different texts. UnmeasuredError: fewer than five blocks.
    """
    if len(reference.nll) != len(candidate.nll):
        raise UsageError(
            f"{len(reference.nll)} reference tokens and {len(candidate.nll)} candidate tokens; "
            "score both on one text"
        )
    sizes = [len(b) for b in _blocks(reference.nll, block_tokens)]

    def paired(a: Sequence[float], b: Sequence[float]) -> PairedDifference:
        means = [[statistics.fmean(x) for x in _blocks(side, block_tokens)] for side in (a, b)]
        return paired_difference(means[0], means[1], weights=sizes)

    zeros = [0.0] * len(candidate.kl)
    return TextQuality(
        nll=paired(reference.nll, candidate.nll),
        kl=paired(zeros, candidate.kl),
        other_top=paired(zeros, [float(not same) for same in candidate.same_top]),
        tokens=len(candidate.nll),
    )


def _blocks(values: Sequence[float], size: int) -> list[Sequence[float]]:
    return [values[i : i + size] for i in range(0, len(values), size)]


@dataclass(frozen=True)
class ReplyQuality:
    """Over a set of prompts; each prompt is a unit.

    Attributes:
        passed: share of prompts whose reply passes its check, reference and candidate.
        different: share of replies that are not the reference's, to the last token.
        divergence: median position of the first differing token among those replies, in tokens
            (in characters where no token ids are known); None when all replies are equal.
        divergence_unit: "tokens" or "characters".
    """

    passed: PairedDifference
    different: PairedDifference
    divergence: float | None
    divergence_unit: str
    prompts: int

    @property
    def equal_share(self) -> float:
        """Exact match: replies equal to the reference's / all."""
        return 1 - self.different.candidate


def reply_quality(
    prompts: Sequence[QualityPrompt], reference: Sequence[Reply], candidate: Sequence[Reply]
) -> ReplyQuality:
    """Compare replies prompt by prompt. Works on any source of replies, a server included.

    Raises:
        UsageError: replies that do not belong to these prompts. UnmeasuredError: fewer than five.
    """
    names = [p.id for p in prompts]
    for side in (reference, candidate):
        if [r.prompt_id for r in side] != names:
            raise UsageError("the replies are not those of these prompts, in this order")
    told = all(r.tokens is not None for r in (*reference, *candidate))
    parts = [_parting(a, b, tokens=told) for a, b in zip(reference, candidate, strict=True)]
    wrong = [p for p in parts if p is not None]
    scores = [
        [float(passes(p, r.text)) for p, r in zip(prompts, side, strict=True)]
        for side in (reference, candidate)
    ]
    return ReplyQuality(
        passed=paired_difference(scores[0], scores[1]),
        different=paired_difference([0.0] * len(parts), [float(p is not None) for p in parts]),
        divergence=statistics.median(wrong) if wrong else None,
        divergence_unit="tokens" if told else "characters",
        prompts=len(parts),
    )


def _parting(a: Reply, b: Reply, *, tokens: bool) -> int | None:
    if tokens:
        assert a.tokens is not None and b.tokens is not None
        return first_difference(a.tokens, b.tokens)
    return first_difference([ord(c) for c in a.text], [ord(c) for c in b.text])


@dataclass(frozen=True)
class QualityRow:
    """One candidate in the table; parts that were not measured are None."""

    name: str
    text: TextQuality | None = None
    replies: ReplyQuality | None = None
    needle: PairedDifference | None = None
    stored_bytes: int | None = None
    reference_bytes: int | None = None

    @property
    def smaller(self) -> float | None:
        """Bytes of the reference over bytes of the candidate."""
        if not self.stored_bytes or not self.reference_bytes:
            return None
        return self.reference_bytes / self.stored_bytes

    def cells(self) -> dict[str, Any]:
        """The row as flat values for a table; intervals as "value [low, high]"."""
        out: dict[str, Any] = {"cache": self.name}
        if self.stored_bytes is not None:
            out["bytes"] = self.stored_bytes
            out["smaller"] = f"{self.smaller:.2f}x" if self.smaller else ""
        if self.text is not None:
            ratio, low, high = self.text.perplexity_ratio
            out["perplexity"] = round(self.text.perplexity, 2)
            out["ratio"] = f"{ratio:.3f} [{low:.3f}, {high:.3f}]"
            out["KL [nat/token]"] = _shown(self.text.kl, 5)
            out["other top token"] = _shown(self.text.other_top, 3)
        if self.replies is not None:
            out["other reply"] = _shown(self.replies.different, 2)
            parts = self.replies.divergence
            out[f"parts at [{self.replies.divergence_unit}]"] = parts if parts is not None else ""
            out["passed"] = f"{self.replies.passed.candidate:.2f}"
            out["passed, difference"] = _shown(self.replies.passed, 2)
        if self.needle is not None:
            out["needle found"] = f"{self.needle.candidate:.2f}"
        return out


def _shown(d: PairedDifference, digits: int) -> str:
    return f"{d.mean:.{digits}f} [{d.low:.{digits}f}, {d.high:.{digits}f}]"


def needle_difference(
    prompts: Sequence[QualityPrompt], reference: Sequence[Reply], candidate: Sequence[Reply]
) -> PairedDifference | None:
    """Share of needles found, candidate against reference; None without five needle prompts."""
    keep = [i for i, p in enumerate(prompts) if p.kind == "needle"]
    if len(keep) < 5:
        return None
    sides = [[float(passes(prompts[i], side[i].text)) for i in keep]
             for side in (reference, candidate)]  # fmt: skip
    return paired_difference(sides[0], sides[1])
