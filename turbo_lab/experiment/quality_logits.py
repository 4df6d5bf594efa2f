"""Per-token quality from logits: negative log-likelihood, KL to the reference, top-1 agreement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import UsageError


@dataclass(frozen=True)
class TokenScores:
    """One value per scored token, in the order of the text.

    Attributes:
        nll: negative log-likelihood of the true token, in nats.
        kl: KL(reference || this) over the full vocabulary, in nats; zeros for the reference itself.
        same_top: the most likely token is the reference's.
    """

    nll: tuple[float, ...]
    kl: tuple[float, ...]
    same_top: tuple[bool, ...]

    def __add__(self, other: TokenScores) -> TokenScores:
        """The scores of a text after those of another."""
        return TokenScores(self.nll + other.nll, self.kl + other.kl, self.same_top + other.same_top)


EMPTY = TokenScores((), (), ())


def token_scores(logits: Any, *, reference: Any, targets: Any) -> TokenScores:
    """Score one stretch of text.

    Formulas: ``nll = -log q[target]``; ``KL = sum p (log p - log q)``, with ``log p`` and ``log q``
    the log-softmax in float32 of the reference's and of these logits. Equal logits give exactly 0.

    Args:
        logits: tensor [tokens, vocabulary] of the candidate; row i predicts ``targets[i]``.
        reference: the reference's logits, same shape.
        targets: token ids [tokens].

    Raises:
        UsageError: shapes that do not fit (two vocabularies cannot be compared).
    """
    import torch

    if logits.shape != reference.shape or logits.shape[0] != targets.shape[0]:
        raise UsageError(
            f"logits {tuple(logits.shape)}, reference {tuple(reference.shape)} and "
            f"{targets.shape[0]} targets do not fit; both models need one tokenizer"
        )
    log_q = torch.log_softmax(logits.float(), dim=-1)
    log_p = torch.log_softmax(reference.float(), dim=-1)
    nll = -log_q.gather(1, targets[:, None])[:, 0]
    kl = (log_p.exp() * (log_p - log_q)).sum(dim=-1)
    same = logits.argmax(dim=-1) == reference.argmax(dim=-1)
    return TokenScores(tuple(nll.tolist()), tuple(kl.tolist()), tuple(same.tolist()))


def first_difference(reference: Sequence[int], candidate: Sequence[int]) -> int | None:
    """Position of the first token that differs (also where one reply ends); None when equal."""
    for place, (a, b) in enumerate(zip(reference, candidate, strict=False)):
        if a != b:
            return place
    return None if len(reference) == len(candidate) else min(len(reference), len(candidate))
