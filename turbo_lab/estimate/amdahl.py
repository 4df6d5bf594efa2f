"""Amdahl's law: what a faster part makes of the whole.

A part takes the share f of the time and becomes s times as fast; the rest stays. Then the whole is
1 / ((1 - f) + f / s) times as fast, and never more than 1 / (1 - f) (Amdahl 1967, for processors).
The law holds for stages that follow one another; stages that overlap gain less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from turbo_lab.core.errors import UsageError


def speedup(share: float, *, faster: float) -> float:
    """How many times as fast the whole is when a part of this share gets ``faster`` times as fast.

    ``faster`` may be below 1 (the part got slower) and infinite (the part is gone).

    Raises:
        UsageError: a share outside 0 to 1, or ``faster`` not above 0.
    """
    if not 0 <= share <= 1:
        raise UsageError(f"the share is {share!r}; it must lie between 0 and 1")
    if not faster > 0:
        raise UsageError(f"faster is {faster!r}; it must be above 0 (2 is twice as fast)")
    rest = (1 - share) + (0.0 if math.isinf(faster) else share / faster)
    return math.inf if rest == 0 else 1 / rest


def limit(share: float) -> float:
    """The speed-up that no improvement of the part can pass: ``1 / (1 - share)``."""
    return speedup(share, faster=math.inf)


def needed(share: float, *, whole: float) -> float:
    """How many times as fast the part must become to make the whole ``whole`` times as fast.

    ``math.inf`` where it must vanish; 1.0 where it takes no time and nothing is asked of it. Raises
    UsageError where no improvement of it is enough, and where a part of no time is to slow the
    whole down.
    """
    if not whole > 0:
        raise UsageError(f"the whole is to be {whole!r} times as fast; it must be above 0")
    if whole > limit(share) * (1 + 1e-12):
        raise UsageError(
            f"a part of {share:.1%} can make the whole {limit(share):.3g} times as fast at most, "
            f"not {whole:g} times. Improve a larger part"
        )
    if share == 0:
        if whole < 1 - 1e-12:
            raise UsageError(
                f"a part that takes no time cannot slow the whole down to {whole:g} times its "
                "speed. Name a part that takes time"
            )
        return 1.0
    left = 1 / whole - (1 - share)
    return math.inf if left <= 1e-15 else share / left


def shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Each stage's part of the sum. Raises UsageError where the sum is not above 0."""
    whole = sum(seconds.values())
    if not whole > 0:
        raise UsageError(f"the stages take {whole!r} s together; nothing to divide")
    return {name: value / whole for name, value in seconds.items()}
