"""What the engine itself counted about its guesses, between two readings of ``/metrics``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.engines.metrics_page import sum_over_labels
from turbo_lab.estimate.speculation import position_rates

STEPS = "vllm:iteration_tokens_total_count"
REPLY_TOKENS = "vllm:generation_tokens_total"
DRAFTS = "vllm:spec_decode_num_drafts_total"
PROPOSED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
_POSITION = re.compile(r'position="(\d+)"')


@dataclass(frozen=True)
class GuessCounts:
    """Sums since the server's start, or between two readings.

    ``steps``: engine steps, prompts' included. ``reply_tokens``: all tokens given out. ``drafts``:
    times that a request had a guess in a step; ``proposed`` and ``accepted``: tokens of them.
    ``per_position``: accepted tokens at the first, second ... place of the guess. A server without
    speculation has no guesses.
    """

    steps: int
    reply_tokens: int
    drafts: int = 0
    proposed: int = 0
    accepted: int = 0
    per_position: tuple[int, ...] = ()

    def since(self, before: GuessCounts) -> GuessCounts:
        """What was added after ``before``."""
        pairs = zip(self.per_position, before.per_position or (0,) * len(self.per_position),
                    strict=True)  # fmt: skip
        return GuessCounts(
            self.steps - before.steps, self.reply_tokens - before.reply_tokens,
            self.drafts - before.drafts, self.proposed - before.proposed,
            self.accepted - before.accepted, tuple(a - b for a, b in pairs),
        )  # fmt: skip

    def decode_steps(self, *, requests: int) -> int:
        """Steps that made further tokens, for ``requests`` that ran one after the other.

        Each had one step of its own for its prompt, which gave its first token. Raises
        UnmeasuredError where fewer steps were counted than there were requests.
        """
        if self.steps < requests:
            raise UnmeasuredError(f"the engine counted {self.steps} steps for {requests} requests")
        return self.steps - requests

    def proposal_share(self, *, requests: int) -> float:
        """Share of the decode steps that had a guess to check, requests one after the other."""
        steps = self.decode_steps(requests=requests)
        if not steps:
            raise UnmeasuredError("no decode step was counted")
        return self.drafts / steps

    def tokens_per_draft(self) -> float:
        """Mean tokens of a step with a guess: the accepted ones and one more."""
        if not self.drafts:
            raise UnmeasuredError("the engine counted no guess")
        return 1 + self.accepted / self.drafts

    def rates(self) -> tuple[float, ...]:
        """Share of all guesses of which the first, the first two ... tokens were accepted."""
        if not self.drafts:
            raise UnmeasuredError("the engine counted no guess")
        return position_rates(self.per_position, drafts=self.drafts)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {**asdict(self), "per_position": list(self.per_position)}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> GuessCounts:
        """Inverse of ``to_dict``."""
        return cls(**{**raw, "per_position": tuple(raw["per_position"])})


def read_counts(server: Any) -> GuessCounts:
    """The server's counters now. Raises UnmeasuredError where it publishes no steps."""
    page: Mapping[str, float] = server.metrics()
    sums = sum_over_labels(page)
    if missing := [name for name in (STEPS, REPLY_TOKENS) if name not in sums]:
        raise UnmeasuredError(f"the server publishes no {', '.join(missing)} on /metrics")
    places: dict[int, float] = {}
    for key, value in page.items():
        if key.startswith(PER_POSITION) and (found := _POSITION.search(key)):
            place = int(found[1])
            places[place] = places.get(place, 0.0) + value
    return GuessCounts(
        steps=int(sums[STEPS]),
        reply_tokens=int(sums[REPLY_TOKENS]),
        drafts=int(sums.get(DRAFTS, 0)),
        proposed=int(sums.get(PROPOSED, 0)),
        accepted=int(sums.get(ACCEPTED, 0)),
        per_position=tuple(int(places[i]) for i in sorted(places)),
    )
