"""How often the draft is right: agreement with the teacher's own greedy replies, class by class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.speculative.draft_data import Conversation

RESAMPLES = 2000
ROWS = 16


@dataclass(frozen=True)
class Agreement:
    """Share of places where the draft's best token is the teacher's, with its 95 % interval.

    The interval is a percentile bootstrap over replies, since places of one reply are not
    independent. ``places``: tokens compared; ``replies``: replies they come from.
    """

    share: float
    low: float
    high: float
    places: int
    replies: int

    def as_dict(self) -> dict[str, float]:
        """Plain data, shares rounded to four digits."""
        return {
            "share": round(self.share, 4), "low": round(self.low, 4), "high": round(self.high, 4),
            "places": self.places, "replies": self.replies,
        }  # fmt: skip

    def __str__(self) -> str:
        return f"{self.share:.1%} [{self.low:.1%}, {self.high:.1%}]"


def reply_hits(draft: Any, conversations: Sequence[Conversation]) -> list[list[bool]]:
    """For each reply, at each of its places: does the draft choose the token that stands there?

    Meant for greedy replies, where that token is the teacher's best. ``draft``: a causal model.
    """
    import torch

    order = sorted(range(len(conversations)), key=lambda i: len(conversations[i].text.ids))
    hits: list[list[bool]] = [[] for _ in conversations]
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        for at in range(0, len(order), ROWS):
            rows = order[at : at + ROWS]
            texts = [conversations[i].text for i in rows]
            ids = torch.nn.utils.rnn.pad_sequence([t.ids for t in texts], batch_first=True)
            states = draft.model(ids).last_hidden_state
            for row, (i, text) in enumerate(zip(rows, texts, strict=True)):
                own = states[row, text.reply_start - 1 : len(text.ids) - 1]
                best = _best(own, draft.lm_head.weight)
                hits[i] = (best == text.ids[text.reply_start :]).tolist()
    return hits


def _best(states: Any, head: Any) -> Any:
    """Best token of each state; the best few by 16-bit logits are compared in 32 bits."""
    import torch

    few = (states @ head.T).topk(min(8, len(head))).indices
    exact = torch.einsum("pkh,ph->pk", head[few].float(), states.float())
    return few.gather(1, exact.argmax(1, keepdim=True))[:, 0]


def agreement(hits: Sequence[Sequence[bool]], *, seed: int = 0) -> Agreement:
    """Pool the places of these replies. Raises UnmeasuredError without any place."""
    import numpy as np

    counts = np.array([[sum(h), len(h)] for h in hits if h], dtype=float)
    if not len(counts):
        raise UnmeasuredError("there is no reply to compare")
    rng = np.random.default_rng(seed)
    drawn = counts[rng.integers(0, len(counts), (RESAMPLES, len(counts)))].sum(1)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
    right, places = map(int, counts.sum(0))
    return Agreement(right / places, float(low), float(high), places, len(counts))


def by_class(
    conversations: Sequence[Conversation], hits: Sequence[Sequence[bool]]
) -> dict[str, Agreement]:
    """Agreement of each class and, under ``all``, of everything together."""
    out = {"all": agreement(hits)}
    for kind in dict.fromkeys(c.kind for c in conversations):
        mine = [h for c, h in zip(conversations, hits, strict=True) if c.kind == kind]
        out[kind] = agreement(mine)
    return out


def accepted_by_position(hits: Iterable[Sequence[bool]], *, draft_tokens: int) -> list[float]:
    """Share of steps whose first, second, ... guess is accepted, as an engine counts it.

    Greedy verification keeps the guesses before the first wrong one and adds one token of its own,
    so the hits at the reply's places tell every step. The first token of a reply comes from the
    prompt's own step. A guess beyond the reply's end counts as not accepted. Raises UsageError for
    ``draft_tokens`` below 1, UnmeasuredError without any step.
    """
    if draft_tokens < 1:
        raise UsageError(f"draft_tokens is {draft_tokens}; it must be at least 1")
    accepted, steps = [0] * draft_tokens, 0
    for row in hits:
        at = 1
        while at < len(row):
            run = next((i for i, hit in enumerate(row[at : at + draft_tokens]) if not hit),
                       min(draft_tokens, len(row) - at))  # fmt: skip
            for i in range(run):
                accepted[i] += 1
            at, steps = at + run + 1, steps + 1
    if not steps:
        raise UnmeasuredError("no reply is longer than one token, so nothing is guessed")
    return [count / steps for count in accepted]
