"""Let the teacher write many texts at once, and keep its last hidden state at every place.

The hidden state times the output head is the teacher's whole distribution over the next token, so
keeping it (1.2 kB a token) keeps every logit, and no second pass over the text is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import UsageError
from turbo_lab.speculative.draft_cache import RaggedCache, use_grouped_attention

TOP = 64  # a sampled token is one of the teacher's best 64
PREFILL_ROWS = 32
FULL_ROWS = 0.75  # finished rows are thrown out when fewer than this share still write


@dataclass(frozen=True)
class Written:
    """One text: ids [tokens]; states [tokens - 1 - first, hidden] of places ``first`` and later.

    The state at place i tells the distribution of token i + 1. The reply starts at ``reply_start``.
    """

    ids: Any
    states: Any
    first: int
    reply_start: int


def common_start(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens that all prompts begin with, at least one fewer than the shortest prompt has."""
    shortest = min(len(p) for p in prompts)
    same = (len({p[i] for p in prompts}) == 1 for i in range(shortest - 1))
    return next((i for i, equal in enumerate(same) if not equal), shortest - 1)


def write_texts(
    teacher: Any,
    prompts: Sequence[Sequence[int]],
    *,
    new_tokens: int,
    temperatures: Sequence[float],
    stops: Sequence[int],
    seed: int,
) -> list[Written]:
    """One continuation of each prompt (ids), up to ``new_tokens`` or a stop token (kept).

    Temperature 0 takes the best token; above, one of the best 64 by Gumbel noise from ``seed``.
    ``first`` of the result is the last token that all prompts share. Raises UsageError for an empty
    prompt or unequal counts.
    """
    import torch

    if not prompts or min(map(len, prompts)) < 1 or len(prompts) != len(temperatures):
        raise UsageError(f"{len(prompts)} prompts (none empty), {len(temperatures)} temperatures")
    with torch.inference_mode():
        use_grouped_attention(teacher)
        work = _Work(teacher, prompts, new_tokens, temperatures, seed)
        work.read_prompts()
        for step in range(new_tokens):
            work.choose(stops)
            if step + 1 == new_tokens or not work.advance():
                break
    return work.written()


class _Work:
    """The state of one batch. Rows are sorted by length; ``rows`` names those that still write."""

    def __init__(self, teacher: Any, prompts: Any, new_tokens: int, temperatures: Any, seed: int):
        import torch

        self.teacher, self.prompts = teacher, prompts
        self.order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        lengths = torch.tensor([len(prompts[i]) for i in self.order])
        room = int(lengths.max()) + new_tokens
        self.ids = torch.zeros(len(prompts), room, dtype=torch.int64)
        self.states = torch.zeros(len(prompts), room, teacher.config.hidden_size,
                                  dtype=teacher.dtype)  # fmt: skip
        for row, i in enumerate(self.order):
            self.ids[row, : len(prompts[i])] = torch.tensor(prompts[i])
        self.lengths = lengths
        self.rows = torch.arange(len(prompts))
        self.done = torch.zeros(len(prompts), dtype=torch.bool)
        self.heat = torch.tensor([temperatures[i] for i in self.order], dtype=torch.float32)
        self.noise = torch.Generator().manual_seed(seed)
        self.cache = RaggedCache(teacher, rows=len(prompts), room=room)
        self.shared = common_start(prompts)

    def _forward(self, ids: Any, positions: Any, mask: Any) -> Any:
        out = self.teacher.model(ids, attention_mask=mask, position_ids=positions,
                                 past_key_values=self.cache, use_cache=True)  # fmt: skip
        return out.last_hidden_state

    def read_prompts(self) -> None:
        """Prefill: the common start once, then groups of rows of about equal length."""
        import torch

        if self.shared:
            whole, self.cache = self.cache, RaggedCache(self.teacher, rows=1, room=self.shared)
            self._read(slice(0, 1), 0, self.shared)
            whole.share(self.cache, self.shared)
            self.cache = whole
        for at in range(0, len(self.rows), PREFILL_ROWS):
            group = slice(at, min(at + PREFILL_ROWS, len(self.rows)))
            end = int(self.lengths[group].max())
            self.states[group, self.shared : end] = self._read(group, self.shared, end)
        self.hidden = self.states[torch.arange(len(self.rows)), self.lengths - 1]

    def _read(self, group: slice, start: int, end: int) -> Any:
        import torch

        self.cache.write = (group, start)
        places = torch.arange(start, end)
        hidden = torch.arange(end)[None, :] > places[:, None]
        mask = torch.zeros(hidden.shape, dtype=self.teacher.dtype)
        mask.masked_fill_(hidden, float("-inf"))
        return self._forward(self.ids[group, start:end], places[None], mask[None, None])

    def choose(self, stops: Sequence[int]) -> None:
        """Pick the next token of every row that has not ended."""
        import torch

        head = self.teacher.lm_head.weight
        best = (self.hidden @ head.T).topk(TOP if len(head) > TOP else len(head)).indices
        # 16-bit logits tie often; the best ones are compared in 32 bits
        exact = torch.einsum("rkh,rh->rk", head[best].float(), self.hidden.float())
        uniform = torch.rand(exact.shape, generator=self.noise).clamp_min(1e-9)
        exact += self.heat[self.rows, None] * -torch.log(-torch.log(uniform))
        token = best.gather(1, exact.argmax(1, keepdim=True))[:, 0]
        writing = ~self.done[self.rows]
        rows = self.rows[writing]
        self.ids[rows, self.lengths[rows]] = token[writing]
        self.lengths[rows] += 1
        self.done[rows] = torch.isin(token[writing], torch.tensor(list(stops)))

    def advance(self) -> bool:
        """Read the chosen tokens; False when no row writes any more."""
        import torch

        alive = ~self.done[self.rows]
        if not bool(alive.any()):
            return False
        if float(alive.float().mean()) <= FULL_ROWS:
            self.cache.keep(alive)
            self.rows = self.rows[alive]
        places = self.lengths[self.rows] - 1
        self.cache.write, self.cache.width = (None, places), int(places.max()) + 1
        hidden = torch.arange(self.cache.width)[None, :] > places[:, None]
        mask = torch.zeros(hidden.shape, dtype=self.teacher.dtype)
        mask.masked_fill_(hidden, float("-inf"))
        ids = self.ids[self.rows, places][:, None]
        self.hidden = self._forward(ids, places[:, None], mask[:, None, None])[:, 0]
        self.states[self.rows, places] = self.hidden
        return True

    def written(self) -> list[Written]:
        """The texts in the order of the prompts."""
        out: list[Any] = [None] * len(self.prompts)
        for row, i in enumerate(self.order):
            end = int(self.lengths[row])
            out[i] = Written(
                self.ids[row, :end].clone(), self.states[row, self.shared : end - 1].clone(),
                self.shared, len(self.prompts[i]),
            )  # fmt: skip
        return out
