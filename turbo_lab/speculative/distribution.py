"""Are two sets of sampled replies from one distribution? A permutation test on counts.

The arms get the same prompts, many seeds each. Under the null hypothesis the labels "on" and "off"
are exchangeable, so the counts of one arm are a draw without replacement from both together: the
p-value needs no approximation. Use different seeds in the two arms: equal seeds may give equal
noise, then the samples are no longer independent and a difference is seen less often.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from turbo_lab.core.errors import UsageError

Counts = Mapping[Hashable, int]
PERMUTATIONS = 10_000
LEAST = 5  # rarer outcomes (both arms together) are counted as one: alone they prove nothing
REST = "(rare)"


@dataclass(frozen=True)
class DistributionTest:
    """Result of ``same_distribution``.

    Attributes:
        samples: sampled tokens of the first and the second arm.
        outcomes: different outcomes compared, summed over the prompts.
        statistic: G, twice the log-likelihood ratio of two distributions against one.
        p_value: share of label permutations with at least this statistic.
        level: below it the verdict is "differ"; also the rate of false alarms.
        distance: total variation distance of the two samples. Above 0 for equal distributions too.
        visible_distance: a true distance of this size in every prompt whose replies vary is seen in
            at least ``power`` of the cases, whatever its shape; None where not even 1 would be: too
            few samples, or replies that never vary.
        power: see there.
    """

    samples: tuple[int, int]
    outcomes: int
    statistic: float
    p_value: float
    level: float
    distance: float
    visible_distance: float | None
    power: float

    @property
    def verdict(self) -> Literal["differ", "no difference shown", "cannot tell"]:
        """``cannot tell`` where no distance would have been seen, so that silence says nothing."""
        if self.p_value < self.level:
            return "differ"
        return "cannot tell" if self.visible_distance is None else "no difference shown"

    def __str__(self) -> str:
        seen = "no distance would be seen"
        if self.visible_distance is not None:
            seen = f"a distance of {self.visible_distance:.2f} would be seen"
        return (
            f"{self.verdict} (p = {self.p_value:.3g}, {self.samples[0]} and {self.samples[1]} "
            f"samples; {seen} in {self.power:.0%} of cases)"
        )


def same_distribution(
    on: Sequence[Counts],
    *,
    off: Sequence[Counts],
    level: float = 0.01,
    power: float = 0.8,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> DistributionTest:
    """Compare the replies of two arms, prompt by prompt.

    Args:
        on: per prompt, how often each outcome (a token, or the first two of them) came.
        off: the same prompts in the same order, sampled with other seeds.
        level: rate of false alarms, between 0 and 1.
        power: for ``visible_distance``, between ``level`` and 1.
        permutations: relabellings drawn; the p-value is at least 1 / (permutations + 1).
        seed: of the permutations.

    Raises:
        UsageError: other prompts in the two arms, an arm without samples, or values out of range.
    """
    if not 0 < level < power < 1 or permutations < 1 / level:
        raise UsageError(
            f"level {level}, power {power}, {permutations} permutations: needed 0 < level < power "
            "< 1 and at least 1 / level permutations"
        )
    tables = _tables(on, off)
    rng = np.random.default_rng(seed)
    found = sum(_g(table) for table in tables)
    by_chance = sum(_relabelled(table, permutations, rng) for table in tables)
    reached = int(np.count_nonzero(by_chance >= found * (1 - 1e-9)))
    first, second = (sum(int(table[arm].sum()) for table in tables) for arm in (0, 1))
    return DistributionTest(
        samples=(first, second),
        outcomes=sum(table.shape[1] for table in tables),
        statistic=float(found),
        p_value=(reached + 1) / (permutations + 1),
        level=level,
        distance=_distance(tables),
        visible_distance=_visible(tables, level=level, power=power),
        power=power,
    )


def _tables(on: Sequence[Counts], off: Sequence[Counts]) -> list[np.ndarray]:
    """One (2, outcomes) table per prompt. Merging looks at both arms together, so it stays fair."""
    if len(on) != len(off) or not on:
        raise UsageError(f"{len(on)} and {len(off)} prompts; the arms need the same, at least one")
    return [
        _table(one, other, prompt) for prompt, (one, other) in enumerate(zip(on, off, strict=True))
    ]


def _table(one: Counts, other: Counts, prompt: int) -> np.ndarray:
    if min([*one.values(), *other.values()], default=-1) < 0 or not (
        sum(one.values()) and sum(other.values())
    ):
        raise UsageError(f"prompt {prompt}: each arm needs samples, and no count below 0")
    merged: dict[Hashable, list[int]] = {}
    for outcome in sorted({*one, *other}, key=repr):
        pair = one.get(outcome, 0), other.get(outcome, 0)
        row = merged.setdefault(outcome if sum(pair) >= LEAST else REST, [0, 0])
        row[0], row[1] = row[0] + pair[0], row[1] + pair[1]
    return np.array([row for row in merged.values() if sum(row)]).T


def _g(table: np.ndarray) -> float:
    return float(_g_of_first(table[0][None], table.sum(axis=0))[0])


def _relabelled(table: np.ndarray, permutations: int, rng: np.random.Generator) -> np.ndarray:
    """G of ``permutations`` random relabellings: a draw without replacement for the first arm."""
    both = table.sum(axis=0)
    first = rng.multivariate_hypergeometric(both, int(table[0].sum()), size=permutations)
    return _g_of_first(first, both)


def _g_of_first(first: np.ndarray, both: np.ndarray) -> np.ndarray:
    """G for many first arms at once: ``2 sum of O ln(O / E)`` over both arms."""
    total, found = both.sum(), np.zeros(len(first))
    for arm in (first, both - first):
        expected = arm.sum(axis=1, keepdims=True) * both / total
        ratio = np.divide(arm, expected, out=np.ones_like(expected), where=arm > 0)
        found += 2 * np.sum(arm * np.log(ratio), axis=1)
    return found


def _distance(tables: Sequence[np.ndarray]) -> float:
    """Total variation distance, weighted by the samples of the prompts."""
    shares = [table / table.sum(axis=1, keepdims=True) for table in tables]
    distances = [0.5 * float(np.abs(one - other).sum()) for one, other in shares]
    return float(np.average(distances, weights=[table.sum() for table in tables]))


def _visible(tables: Sequence[np.ndarray], *, level: float, power: float) -> float | None:
    """Smallest distance that is seen in ``power`` of the cases.

    Moving a share d of the probability adds at least ``4 d^2 n`` to the expected statistic, with
    ``n = n1 n2 / (n1 + n2)``: least when half of the probability gains evenly what the other half
    loses. G is then near a noncentral chi-square with that shift, which must pass the critical
    value.
    """
    from scipy.optimize import brentq
    from scipy.stats import chi2, ncx2

    varied = [table for table in tables if table.shape[1] > 1]
    if not varied:
        return None
    freedom = sum(table.shape[1] - 1 for table in varied)
    limit = chi2.ppf(1 - level, freedom)
    shift = brentq(lambda s: ncx2.sf(limit, freedom, s) - power, 1e-9, 1e6)
    arms = [table.sum(axis=1).astype(float) for table in varied]
    samples = sum(one * other / (one + other) for one, other in arms)
    found = float(np.sqrt(shift / (4 * samples)))
    return found if found <= 1 else None
