"""What the draft learns: to give the teacher's distribution over the next token.

With d and t the draft's and the teacher's last hidden state (after the final norm) and E the shared
output head (rows: words of the vocabulary):

    loss = KL(softmax(E_C t) || softmax(E_C d)) + hard * CE(argmax E_C t, E_C d)
         + logit * mean over the whole vocabulary of (E d - E t)^2, up to a shift

KL and CE run over candidate words C only: the most frequent ones, those of the batch and some
random ones, which costs a sixth of the whole head. The last term keeps all other words in place and
costs nothing: mean_v (e_v x)^2 - (mean_v e_v x)^2 = x^T G x, with G the covariance of E's rows.
Sources: Hinton et al. 2015 (arXiv:1503.02531) for KL, Kim et al. 2021 (arXiv:2105.08919) for the
logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.speculative.draft_recipe import TrainRecipe

PART_PLACES = 256


@dataclass(frozen=True)
class Targets:
    """What does not change during training. ``head``: [vocabulary, hidden] in bfloat16."""

    head: Any
    covariance: Any
    frequent: Any


def make_targets(head: Any, states: Any, recipe: TrainRecipe) -> Targets:
    """``states``: the teacher's at a sample of places [places, hidden].

    The most frequent words are those with the highest mean probability at these places.
    """
    import torch

    rows = head.detach().to(torch.bfloat16)
    with torch.no_grad():
        mean = torch.zeros(len(rows))
        for part in states.to(rows.dtype).split(512):
            mean += (part @ rows.T).float().softmax(-1).sum(0)
        centred = rows.float() - rows.float().mean(0)
        covariance = centred.T @ centred / len(rows)
    return Targets(rows, covariance, mean.argsort(descending=True, stable=True)[: recipe.frequent])


def candidates(targets: Targets, batch_ids: Any, recipe: TrainRecipe, *, seed: int) -> Any:
    """Sorted ids of the words that one step compares."""
    import torch

    noise = torch.Generator().manual_seed(seed)
    random = torch.randint(len(targets.head), (recipe.random,), generator=noise)
    return torch.unique(torch.cat([targets.frequent, batch_ids.flatten(), random]))


def backward(
    draft: Any, teacher: Any, weights: Any, *, words: Any, targets: Targets, recipe: TrainRecipe
) -> float:
    """Add the loss' gradient to whatever ``draft`` [places, hidden] came from; returns the loss.

    The loss is the weighted mean over places; the teacher's entropy, a constant of KL, is left in.
    Places are taken in parts that fit into the processor's cache.
    """
    import torch

    rows, total = targets.head[words], weights.sum()
    leaf, loss = draft.detach().requires_grad_(), 0.0
    for part in torch.arange(len(draft)).split(PART_PLACES):
        losses = _losses(leaf[part], teacher[part], rows, targets, recipe)
        share = (losses * weights[part]).sum() / total
        share.backward()
        loss += float(share.detach())
    draft.backward(leaf.grad)
    return loss


def _losses(draft: Any, teacher: Any, rows: Any, targets: Targets, recipe: TrainRecipe) -> Any:
    """Loss of each place; ``rows``: those of the head that are compared."""
    from torch.nn.functional import cross_entropy

    wanted = (teacher.to(rows.dtype) @ rows.T).float()
    given = (draft.to(rows.dtype) @ rows.T).float()
    loss = cross_entropy(given, wanted.softmax(-1), reduction="none")
    if recipe.hard:
        loss = loss + recipe.hard * cross_entropy(given, wanted.argmax(-1), reduction="none")
    if recipe.logit:
        error = draft.float() - teacher.float()
        loss = loss + recipe.logit * ((error @ targets.covariance) * error).sum(-1)
    return loss


def batches_of(
    lengths: Sequence[int], *, batch_tokens: int, seed: str, window: int = 256
) -> list[list[int]]:
    """Indices in batches of about ``batch_tokens``, in an order drawn from ``seed``.

    Shuffled, then sorted by length inside windows, so that little is spent on padding.
    """
    import random

    rng = random.Random(seed)
    order = list(range(len(lengths)))
    rng.shuffle(order)
    out: list[list[int]] = []
    for at in range(0, len(order), window):
        batch: list[int] = []
        for i in sorted(order[at : at + window], key=lambda i: lengths[i]):
            if batch and (len(batch) + 1) * lengths[i] > batch_tokens:
                out.append(batch)
                batch = []
            batch.append(i)
        out.append(batch)
    rng.shuffle(out)
    return out
