"""Speed-ups of a class of prompts, forecast from what was known before, beside the measured ones.

n-gram: the off-control's replies tell every guess (``lookup``). Draft: the acceptance on *other*
prompts of the class stands for this one. Both with the measured costs of ``cost``. Nothing of the
run that is forecast goes in.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.estimate.proposals import Proposals
from turbo_lab.estimate.verification import CostOfCheck
from turbo_lab.speculative.arms import Arm
from turbo_lab.speculative.lookup import GuessedStep, guess_steps


@dataclass(frozen=True)
class LookupForecast:
    """What n-gram lookup will do with known replies, one after the other."""

    steps: tuple[GuessedStep, ...]
    draft_tokens: int

    @classmethod
    def of(
        cls,
        prompts: Sequence[Sequence[int]],
        replies: Sequence[Sequence[int]],
        *,
        draft_tokens: int,
    ) -> LookupForecast:
        """From the token ids of prompts and of their greedy replies."""
        pairs = zip(prompts, replies, strict=True)
        found = [s for p, r in pairs for s in guess_steps(p, r, draft_tokens=draft_tokens)]
        return cls(tuple(found), draft_tokens)  # fmt: skip

    @property
    def drafts(self) -> int:
        """Steps with a guess."""
        return sum(1 for step in self.steps if step.proposed)

    @property
    def proposals(self) -> Proposals:
        """How long the guesses are, steps without one included."""
        return Proposals.from_lengths(Counter(step.proposed for step in self.steps))

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens of a step, those without a guess included."""
        return sum(step.gave for step in self.steps) / len(self.steps)

    @property
    def acceptance(self) -> tuple[float, ...]:
        """Share of the guesses of which the first, the first two ... tokens are right."""
        if not self.drafts:
            return (0.0,) * self.draft_tokens
        kept = [step.accepted for step in self.steps if step.proposed]
        return tuple(sum(k > i for k in kept) / len(kept) for i in range(self.draft_tokens))

    def speedup(self, *, verify_cost: CostOfCheck, empty_step_cost: float = 1.0) -> float:
        """Plain steps for all these tokens over the cost of these steps (``proposals`` in sums)."""
        costs = [verify_cost(s.proposed) if s.proposed else empty_step_cost for s in self.steps]
        return sum(step.gave for step in self.steps) / sum(costs)


@dataclass(frozen=True)
class ForecastRow:
    """One class on one arm: the map is made of these."""

    kind: str
    arm: Arm
    predicted: float
    measured: float
    acceptance: float | None = None

    @property
    def error(self) -> float:
        """What was measured over what was forecast, less 1."""
        return self.measured / self.predicted - 1

    def to_dict(self) -> dict[str, Any]:
        """One row of a table."""
        return {
            "class": self.kind, "guesses": str(self.arm), "predicted": self.predicted,
            "measured": self.measured, "error": self.error,
            "": "slower" if self.measured < 1 else "faster",
        }  # fmt: skip


def median_error(rows: Sequence[ForecastRow]) -> float:
    """The median of the absolute errors. Raises UnmeasuredError without rows."""
    if not rows:
        raise UnmeasuredError("no speed-up was forecast and measured")
    return statistics.median(abs(row.error) for row in rows)
