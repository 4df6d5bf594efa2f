"""What it costs to check guesses: a target step over more tokens than one per sequence, measured.

Costs here are relative: 1 is one plain step of the target (one token per sequence) at the same
concurrency. On a machine whose steps are bound by reading the weights the extra tokens are almost
free; where arithmetic is scarce they are not, and no formula without this term can be right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError

CostOfCheck = Callable[[float], float]
"""``v(k)``: cost of a step that checks k guesses per sequence, relative to a plain step."""


def free(draft_tokens: float) -> float:
    """The paper's assumption, ``v(k) = 1``: checking k + 1 tokens costs as much as writing one."""
    return 1.0


@dataclass(frozen=True)
class VerifyCost:
    """Measured step times over the number of tokens in a step, as a ``v(k)`` to call.

    ``v(k) = t(n (k + 1)) / t(n)`` for ``n`` sequences, with t interpolated linearly between the
    measured points. ``k`` may be a fraction: the mean over a batch in which not all have guesses.

    ``points``: (tokens in the step, its time), ascending; the unit of time cancels.
    ``concurrency``: n. A step over n (k + 1) tokens of n sequences reads n caches, one over as many
    sequences reads more: measure t with the sequences and contexts it is used for.
    """

    points: tuple[tuple[float, float], ...]
    concurrency: int = 1

    def __post_init__(self) -> None:
        """Refuse tables without a plain step to compare with."""
        tokens = [t for t, _ in self.points]
        if self.concurrency < 1:
            raise UsageError(f"concurrency is {self.concurrency}; it must be at least 1")
        if not tokens or tokens != sorted(set(tokens)) or min(s for _, s in self.points) <= 0:
            raise UsageError(
                f"points are {self.points}; needed: rising token counts, each with a time above 0"
            )
        self._time(self.concurrency)

    @classmethod
    def from_steps(cls, step_s: Mapping[int, float], *, concurrency: int = 1) -> VerifyCost:
        """From measured seconds per number of tokens in the step, e.g. ``{1: 0.05, 8: 0.09}``."""
        return cls(tuple(sorted((float(t), s) for t, s in step_s.items())), concurrency)

    @classmethod
    def from_ratios(cls, ratios: Mapping[int, float], *, concurrency: int = 1) -> VerifyCost:
        """From known ``{k: v(k)}``. ``v(0) = 1`` is added: it is what the ratios refer to."""
        known = {0: 1.0, **ratios}
        if known[0] != 1:
            raise UsageError(f"v(0) is {known[0]}; a step without guesses costs 1 by definition")
        return cls.from_steps(
            {concurrency * (k + 1): v for k, v in known.items()}, concurrency=concurrency
        )

    @property
    def most_draft_tokens(self) -> float:
        """The largest k that the measured points cover."""
        return self.points[-1][0] / self.concurrency - 1

    def __call__(self, draft_tokens: float) -> float:
        """``v(k)``. Raises UsageError outside the measured points, where nothing is known."""
        return self._time(self.concurrency * (draft_tokens + 1)) / self._time(self.concurrency)

    def _time(self, tokens: float) -> float:
        tokens = round(tokens, 9)  # n (m / n + 1) is not always n + m
        first, last = self.points[0][0], self.points[-1][0]
        if not first <= tokens <= last:
            raise UsageError(
                f"a step over {tokens:g} tokens was not measured (measured: {first:g} to {last:g} "
                f"tokens, concurrency {self.concurrency}); measure it, or ask for fewer guesses"
            )
        at = bisect_left(self.points, (tokens, 0.0))
        right, right_s = self.points[at]
        if right == tokens:
            return right_s
        left, left_s = self.points[at - 1]
        return left_s + (tokens - left) / (right - left) * (right_s - left_s)
