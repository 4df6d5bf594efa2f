"""Solutions of notebook 08."""

from __future__ import annotations

from types import MappingProxyType


def tokens_per_step(acceptance: float, guesses: int) -> float:
    """1 + a + ... + a^k: the target's own token, and each guess if all before it were kept."""
    return sum(acceptance**place for place in range(guesses + 1))


def gain(tokens: float, guesses: int, draft_cost: float, check_cost: float) -> float:
    """Tokens of a step over its cost in plain steps: k steps of the draft, then one check."""
    return tokens / (guesses * draft_cost + check_cost)


def written(guess: list[int], target: list[int]) -> list[int]:
    """The longest right beginning, and the target's own token behind it.

    ``target`` has one token more than ``guess``: the one that follows if every guess was right.
    """
    kept = 0
    while kept < len(guess) and guess[kept] == target[kept]:
        kept += 1
    return target[: kept + 1]


def look_up(tokens: list[int], ending: int, guesses: int) -> list[int]:
    """What followed the last ``ending`` tokens where they stood first; nothing if they are new."""
    last = tokens[-ending:]
    for start in range(len(tokens) - ending):
        if tokens[start : start + ending] == last:
            return tokens[start + ending : start + ending + guesses]
    return []


def mixed_gain(share: float, tokens: float, cost: float) -> float:
    """Mean tokens per step over mean cost per step; a step without a guess has one of each."""
    return (1 + share * (tokens - 1)) / (1 + share * (cost - 1))


def redraw(target: list[float], draft: list[float]) -> list[float]:
    """What the target has more of than the draft, scaled to 1."""
    surplus = [max(0.0, p - q) for p, q in zip(target, draft, strict=True)]
    return [s / sum(surplus) for s in surplus]


SOLUTIONS = MappingProxyType({
    "08.1": tokens_per_step,
    "08.2": gain,
    "08.3": written,
    "08.4": look_up,
    "08.5": mixed_gain,
    "08.6": redraw,
})  # fmt: skip
