"""Solutions of notebook 17."""

from __future__ import annotations

import math
import statistics
from types import MappingProxyType


def chain_speedup(share: float, faster: float) -> float:
    """Amdahl's law: the rest stays, the part shrinks."""
    return 1 / ((1 - share) + share / faster)


def smallest_p_value(a: int, b: int) -> float:
    """Two of all ways to deal a + b values into groups of a and b are as extreme as can be."""
    return 2 / math.comb(a + b, a)


def changed_settings(a: dict[str, object], b: dict[str, object]) -> list[str]:
    """Names whose values differ; a name that one side lacks differs too."""
    return sorted(name for name in a.keys() | b.keys() if a.get(name, ...) != b.get(name, ...))


def verdict(low: float, high: float, floor: float, lower_is_better: bool) -> str:
    """The whole interval must lie outside the noise floor."""
    if low > floor:
        return "worse" if lower_is_better else "better"
    if high < -floor:
        return "better" if lower_is_better else "worse"
    return "no difference shown"


def cost_of_good(price_per_hour: float, seconds: float, replies: list[tuple[int, bool]]) -> float:
    """The whole run is paid for; only tokens of replies within the objectives are delivered."""
    good = sum(tokens for tokens, within in replies if within)
    return price_per_hour / 3600 * seconds / good * 1e6 if good else math.inf


def gate(main: list[float], branch: list[float], floor: float) -> int:
    """0 lets the build through: every time is known, and the median grew by the floor at most."""
    if len(main) < 5 or len(branch) < 5:
        return 1
    return int(statistics.median(branch) / statistics.median(main) - 1 > floor)


SOLUTIONS = MappingProxyType({
    "17.1": chain_speedup,
    "17.2": smallest_p_value,
    "17.3": changed_settings,
    "17.4": verdict,
    "17.5": cost_of_good,
    "17.6": gate,
})  # fmt: skip
