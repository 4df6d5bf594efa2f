"""Rejection sampling: keep some of the guesses so that the text is distributed as the target's own.

For every guess x, drawn with probability q(x) where the target has p(x): keep it with probability
``min(1, p / q)``. At the first one that is not kept draw from ``max(0, p - q)``, normalised; if all
were kept draw one more token from the target. Source: Leviathan et al., arXiv 2211.17192,
algorithm 1 and appendix A.1.

Arrays of probabilities have the vocabulary as last axis. A guess that is looked up instead of drawn
(n-gram, or a draft that always takes its best token, as vLLM's does by default) was certain:
``one_hot``. It is then kept with probability p(x).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from turbo_lab.core.errors import UsageError

Probabilities = np.ndarray
ROUNDING = 1e-6  # sums of probabilities may miss 1 by this (float32 softmax)


def keep_chance(draft: Probabilities, target: Probabilities) -> Probabilities:
    """Chance to keep each token of the vocabulary: ``min(1, p / q)``, 1 where q is 0."""
    safe = np.where(draft > 0, draft, 1.0)
    return np.where(draft > 0, np.minimum(1.0, target / safe), 1.0)


def residual(draft: Probabilities, target: Probabilities) -> Probabilities:
    """What to draw from after a rejection: ``max(0, p - q)``, normalised; p where p equals q."""
    surplus = np.maximum(0.0, target - draft)
    mass = surplus.sum(axis=-1, keepdims=True)
    return np.where(mass > 0, surplus / np.where(mass > 0, mass, 1.0), target)


@dataclass(frozen=True)
class Rule:
    """When to keep a guess, and what to draw from instead; both see (draft, target) rows.

    Other rules than ``LOSSLESS`` are here to be caught: they write something else than the target.
    """

    keep: Callable[[Probabilities, Probabilities], Probabilities] = keep_chance
    redraw: Callable[[Probabilities, Probabilities], Probabilities] = residual


LOSSLESS = Rule()


@dataclass(frozen=True)
class Emitted:
    """Tokens of one step: the first ``accepted`` are guesses, one more follows.

    ``all_kept``: the last token was drawn from the target, not in place of a rejected guess.
    """

    tokens: tuple[int, ...]
    accepted: int
    all_kept: bool


def accept(
    draft_tokens: Sequence[int],
    *,
    draft_probs: Probabilities,
    target_probs: Probabilities,
    rng: np.random.Generator,
    rule: Rule = LOSSLESS,
) -> Emitted:
    """One step of speculative sampling.

    Args:
        draft_tokens: k guesses, drawn from ``draft_probs``; k may be 0.
        draft_probs: (k, V), the draft's distribution at each guess; ``one_hot`` for looked-up ones.
        target_probs: (k + 1, V), the target's at each guess and after the last, each given that
            all guesses before were kept.
        rng: the only source of chance.
        rule: ``LOSSLESS`` unless a wrong one is to be shown.

    Raises:
        UsageError: shapes that do not fit, rows that are no distribution, or a guess that its own
            draft could never have made.
    """
    draft, target = _checked(draft_tokens, draft_probs, target_probs)
    for at, token in enumerate(draft_tokens):
        if rng.random() >= rule.keep(draft[at], target[at])[token]:
            instead = _draw(rule.redraw(draft[at], target[at]), rng)
            return Emitted((*map(int, draft_tokens[:at]), instead), at, False)
    bonus = _draw(target[len(draft_tokens)], rng)
    return Emitted((*map(int, draft_tokens), bonus), len(draft_tokens), True)


def accept_greedy(draft_tokens: Sequence[int], *, target_tokens: Sequence[int]) -> Emitted:
    """The same at temperature 0: the longest beginning that the target would have written itself.

    ``target_tokens``: the target's best token at each guess and after the last, k + 1 of them.
    Raises UsageError for another number of them.
    """
    if len(target_tokens) != len(draft_tokens) + 1:
        raise UsageError(
            f"{len(draft_tokens)} guesses and {len(target_tokens)} target tokens; one target token "
            "per guess and one after the last are needed"
        )
    kept = 0
    while kept < len(draft_tokens) and draft_tokens[kept] == target_tokens[kept]:
        kept += 1
    tokens = tuple(int(token) for token in target_tokens[: kept + 1])
    return Emitted(tokens, kept, kept == len(draft_tokens))


def one_hot(tokens: Sequence[int], *, vocabulary: int) -> Probabilities:
    """Distributions of guesses that were certain: shape (k, vocabulary), 1 at each token."""
    ids = np.asarray(tokens, dtype=int)
    if vocabulary < 1 or any(not 0 <= token < vocabulary for token in ids):
        raise UsageError(f"tokens {list(tokens)} do not fit a vocabulary of {vocabulary}")
    found = np.zeros((ids.size, vocabulary))
    found[np.arange(ids.size), ids] = 1.0
    return found


def acceptance_rate(
    draft_probs: Probabilities, *, target_probs: Probabilities
) -> Probabilities | float:
    """Chance that a guess drawn from the draft is kept: ``sum over x of min(p, q)``.

    It is 1 less the total variation distance of the two. One number per row; the paper's alpha is
    its mean over the contexts of a text.
    """
    rates = np.minimum(_rows("draft_probs", draft_probs), _rows("target_probs", target_probs))
    found = rates.sum(axis=-1)
    return float(found) if found.ndim == 0 else found


def emitted_distribution(
    draft_probs: Probabilities, *, target_probs: Probabilities, rule: Rule = LOSSLESS
) -> Probabilities:
    """Distribution of the token that comes out at one place, computed without chance.

    ``q keep + (1 - sum of q keep) redraw``; under ``LOSSLESS`` that is p, whatever the draft is.
    """
    draft, target = _rows("draft_probs", draft_probs), _rows("target_probs", target_probs)
    kept = draft * rule.keep(draft, target)
    rejected = 1.0 - kept.sum(axis=-1, keepdims=True)
    return kept + rejected * rule.redraw(draft, target)


def _draw(probabilities: Probabilities, rng: np.random.Generator) -> int:
    """Inverse of the cumulative sum; what rounding leaves over goes to the last possible token."""
    edges = np.cumsum(probabilities)
    at = int(np.searchsorted(edges, rng.random(), side="right"))
    return min(at, int(np.flatnonzero(probabilities)[-1]))


def _rows(name: str, values: Probabilities) -> Probabilities:
    rows = np.asarray(values, dtype=float)
    if rows.ndim == 0 or rows.min(initial=0.0) < 0 or not np.isfinite(rows).all():
        raise UsageError(f"{name} must hold probabilities along its last axis")
    if np.abs(rows.sum(axis=-1) - 1).max(initial=0.0) > ROUNDING:
        raise UsageError(f"{name} must sum to 1 along its last axis; logits need a softmax first")
    return rows


def _checked(
    tokens: Sequence[int], draft_probs: Probabilities, target_probs: Probabilities
) -> tuple[Probabilities, Probabilities]:
    target = _rows("target_probs", target_probs)
    draft = _rows("draft_probs", draft_probs) if len(tokens) else np.zeros((0, target.shape[-1]))
    shapes = (len(tokens), target.shape[-1]), (len(tokens) + 1, target.shape[-1])
    if (draft.shape, target.shape) != shapes:
        raise UsageError(
            f"{len(tokens)} guesses with draft_probs {draft.shape} and target_probs "
            f"{target.shape}; needed: (k, V) and (k + 1, V)"
        )
    for at, token in enumerate(tokens):
        if not 0 <= token < target.shape[-1] or draft[at, token] == 0:
            raise UsageError(
                f"guess {at} is token {token}, which its draft_probs give no chance: draft_probs "
                "must be those it was drawn from (one_hot for a looked-up guess)"
            )
    return draft, target
