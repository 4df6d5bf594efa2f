"""Exercises of notebook 17: Amdahl, few restarts, what changed, verdict, cost, gate."""

from __future__ import annotations

import math
import statistics
from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case


def _bounded_by_the_rest(answer: Any) -> str | None:
    """However fast the part, the rest remains."""
    for share in (0.1, 0.5, 0.9):
        if answer(share, 1e9) > 1 / (1 - share) * (1 + 1e-6):
            return f"A part of {share:.0%} cannot make the whole more than 1 / (1 - share) faster."
    return None


def _sides_may_be_swapped(answer: Any) -> str | None:
    """It does not matter which side is called A."""
    for a, b in ((3, 5), (2, 7)):
        if not math.isclose(answer(a, b), answer(b, a)):
            return f"{a} against {b} and {b} against {a} must give the same."
    return None


def _a_wider_floor_shows_less(answer: Any) -> str | None:
    """What is shown beyond a wide floor is shown beyond a narrow one."""
    if answer(0.06, 0.2, 0.05, True) != "worse" or answer(0.06, 0.2, 0.07, True) == "worse":
        return "With low end 6 % a floor of 5 % shows a difference, one of 7 % does not."
    return None


def _nothing_delivered_is_never_cheap(answer: Any) -> str | None:
    """A run without a single reply was paid for all the same."""
    if answer(3.6, 10.0, []) != math.inf:
        return "Without any reply the cost per token is math.inf, not free and not an error."
    return None


def _missing_runs_do_not_pass(answer: Any) -> str | None:
    """A gate that is not sure must not let a build through."""
    if answer([1.0] * 5, [1.0] * 4, 0.05) != 1 or answer([1.0], [1.0] * 5, 0.05) != 1:
        return "With fewer than five runs on a side nothing can be told: exit code 1."
    return None


FIVE = [1.0, 1.02, 0.98, 1.01, 0.99]

EXERCISES = (
    Exercise(
        id="17.1",
        task="Amdahl's law: chain_speedup(share, faster), where a part of this share of the time "
        "gets so many times as fast",
        cases=(
            case(0.5, 2.0, gives=4 / 3),
            case(0.9, 2.0, gives=1 / 0.55),
            case(1.0, 3.0, gives=3.0, hint="If all of it is inference, all of it gets faster."),
            case(0.0, 10.0, gives=1.0),
            case(0.8, 0.5, gives=1 / 1.8, hint="The part may also get slower."),
        ),
        properties=(_bounded_by_the_rest,),
        mistakes=(
            Mistake("Only the part shrinks; the rest keeps its time.", lambda f, s: f * s + 1 - f),
            Mistake("This is the speed-up of the part alone.", lambda f, s: s),
            Mistake("Times add up, speeds do not: divide the part's time.",
                    lambda f, s: 1 / ((1 - f) + f * s)),
        ),
    ),
    Exercise(
        id="17.2",
        task="Few restarts: the smallest two-sided p-value of a permutation test of the ranks with "
        "a and b restarts a side: smallest_p_value(a, b). All values differ",
        cases=(
            case(3, 3, gives=0.1, hint="There are 20 ways to choose 3 of 6; two are extreme."),
            case(5, 5, gives=2 / 252),
            case(2, 2, gives=1 / 3),
            case(1, 1, gives=1.0),
            case(4, 3, gives=2 / 35),
        ),
        properties=(_sides_may_be_swapped,),
        mistakes=(
            Mistake("Two-sided: both ends count.", lambda a, b: 1 / math.comb(a + b, a)),
            Mistake("The order within a side does not matter.",
                    lambda a, b: 2 / math.factorial(a + b)),
            Mistake("Restarts are dealt out without repetition: choose a of a + b.",
                    lambda a, b: 2 / 2 ** (a + b)),
        ),
    ),
    Exercise(
        id="17.3",
        task="One declared variable: changed_settings(a, b), the sorted names whose values differ; "
        "a name that one side lacks differs too",
        cases=(
            case({"dtype": "bf16", "seqs": 16}, {"dtype": "fp8", "seqs": 16}, gives=["dtype"]),
            case({"a": 1}, {"a": 1}, gives=[], hint="An A/A comparison changes nothing."),
            case({"a": 1, "b": 2}, {"b": 3, "c": 4}, gives=["a", "b", "c"]),
            case({}, {"eager": False}, gives=["eager"],
                 hint="A setting that is there and False is not one that is absent."),
            case({"x": None}, {}, gives=["x"], hint="Not set and absent are not the same."),
        ),
        mistakes=(
            Mistake("Names that only b has differ too.",
                    lambda a, b: sorted(k for k in a if a[k] != b.get(k, ...))),
            Mistake("Names that one side lacks differ too.",
                    lambda a, b: sorted(k for k in a.keys() & b.keys() if a[k] != b[k])),
            Mistake("A value of None is not an absent one.",
                    lambda a, b: sorted(k for k in a.keys() | b.keys() if a.get(k) != b.get(k))),
        ),
    ),
    Exercise(
        id="17.4",
        task="The verdict: verdict(low, high, floor, lower_is_better) of a relative difference "
        "B - A with interval low to high; 'better', 'worse' or 'no difference shown'",
        cases=(
            case(0.06, 0.20, 0.05, True, gives="worse"),
            case(0.06, 0.20, 0.05, False, gives="better", hint="More tokens per second is better."),
            case(0.02, 0.20, 0.05, True, gives="no difference shown",
                 hint="The whole interval must lie outside the floor."),
            case(-0.02, 0.20, 0.05, True, gives="no difference shown"),
            case(-0.30, -0.10, 0.05, True, gives="better"),
            case(-0.30, -0.10, 0.05, False, gives="worse"),
            case(-0.10, 0.10, 0.0, True, gives="no difference shown"),
            case(-0.20, -0.02, 0.05, True, gives="no difference shown",
                 hint="The floor reaches as far below zero as above it."),
            case(-0.20, -0.02, 0.05, False, gives="no difference shown"),
        ),
        properties=(_a_wider_floor_shows_less,),
        mistakes=(
            Mistake("The noise floor counts: equal runs differ as well.",
                    lambda lo, hi, f, less: "no difference shown" if lo <= 0 <= hi
                    else ("worse" if (lo > 0) == less else "better")),
            Mistake("The floor has two sides: -floor for the high end.",
                    lambda lo, hi, f, less: ("worse" if less else "better") if lo > f
                    else ("better" if less else "worse") if hi < 0 else "no difference shown"),
            Mistake("The middle of the interval decides nothing.",
                    lambda lo, hi, f, less: "no difference shown" if abs((lo + hi) / 2) <= f
                    else ("worse" if (lo + hi > 0) == less else "better")),
            Mistake("For a rate more is better.",
                    lambda lo, hi, f, less: "worse" if lo > f else "better" if hi < -f
                    else "no difference shown"),
        ),
    ),
    Exercise(
        id="17.5",
        task="Unit cost at equal service: cost_of_good(price_per_hour, seconds, replies) per "
        "million good tokens; a reply is (tokens, within the objectives); math.inf without any",
        cases=(
            case(3.6, 10.0, [(500, True), (500, True)], gives=10.0),
            case(3.6, 10.0, [(500, True), (500, False)], gives=20.0,
                 hint="Late tokens were paid for and are not delivered."),
            case(3.6, 10.0, [(500, False)], gives=math.inf),
            case(0.1, 3600.0, [(1_000_000, True)], gives=0.1),
            case(3.6, 10.0, [(900, True), (100, False)], gives=0.01 / 900 * 1e6,
                 hint="Tokens count, and replies differ in length."),
        ),
        properties=(_nothing_delivered_is_never_cheap,),
        mistakes=(
            Mistake("Tokens outside the objectives are no service.",
                    lambda p, s, r: p / 3600 * s / sum(n for n, _ in r) * 1e6),
            Mistake("Nothing delivered is infinitely dear, not free.",
                    lambda p, s, r: p / 3600 * s / (sum(n for n, ok in r if ok) or math.inf) * 1e6),
            Mistake("The share of good tokens counts, not that of good replies.",
                    lambda p, s, r: p / 3600 * s / sum(n for n, _ in r) * 1e6
                    / statistics.fmean(ok for _, ok in r) if any(ok for _, ok in r) else math.inf),
            Mistake("A price per hour, a run in seconds.",
                    lambda p, s, r: p * s / (sum(n for n, ok in r if ok) or 1e-300) * 1e6),
        ),
    ),
    Exercise(
        id="17.6",
        task="A gate for CI: gate(main, branch, floor) returns the exit code. Times in s, one per "
        "restart; 1 where the median grew by more than the floor or a side has fewer than 5",
        cases=(
            case(FIVE, FIVE, 0.05, gives=0),
            case(FIVE, [1.2 * v for v in FIVE], 0.05, gives=1),
            case(FIVE, [0.8 * v for v in FIVE], 0.05, gives=0, hint="Faster is no regression."),
            case(FIVE, [1.2 * v for v in FIVE], 0.25, gives=0,
                 hint="Below the floor nothing is shown: such a gate cannot see 20 %."),
            case(FIVE, [*FIVE[:4], 9.0], 0.05, gives=0, hint="One slow restart is no median."),
            case(FIVE, [0.98, 1.3, 1.3, 1.3, 1.3], 0.05, gives=1,
                 hint="One fast restart is no median either."),
            case([0.1 * v for v in FIVE], [0.12 * v for v in FIVE], 0.05, gives=1,
                 hint="The floor is relative: 0.05 is a twentieth of the time, not 50 ms."),
            case([100 * v for v in FIVE], [101 * v for v in FIVE], 0.05, gives=0),
            case(FIVE, FIVE[:3], 0.05, gives=1),
        ),
        properties=(_missing_runs_do_not_pass,),
        mistakes=(
            Mistake("Too few runs have not passed.",
                    lambda m, b, f: int(statistics.median(b) / statistics.median(m) - 1 > f)),
            Mistake("One outlier must not stop a build: compare medians.",
                    lambda m, b, f: 1 if len(m) < 5 or len(b) < 5
                    else int(statistics.fmean(b) / statistics.fmean(m) - 1 > f)),
            Mistake("The floor is relative to main's median.",
                    lambda m, b, f: 1 if len(m) < 5 or len(b) < 5
                    else int(statistics.median(b) - statistics.median(m) > f)),
            Mistake("The best restart hides what the others lost: compare medians.",
                    lambda m, b, f: 1 if len(m) < 5 or len(b) < 5
                    else int(min(b) / min(m) - 1 > f)),
            Mistake("A faster build is no regression.",
                    lambda m, b, f: 1 if len(m) < 5 or len(b) < 5
                    else int(abs(statistics.median(b) / statistics.median(m) - 1) > f)),
        ),
    ),
)  # fmt: skip
