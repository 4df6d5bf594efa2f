"""Exercises of notebook 08: tokens per step, speed-up, checking, looking up, shares, redrawing."""

from __future__ import annotations

import math
from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case


def _break_even_does_not_depend_on_the_share(answer: Any) -> str | None:
    """A share of steps dilutes a gain or a loss; it cannot turn one into the other."""
    for share in (0.1, 0.5, 1.0):
        if not math.isclose(answer(share, 2.0, 2.0), 1.0):
            return "Two tokens for the price of two are no gain, whatever the share of such steps."
    return None


def _the_redrawn_mends_the_kept(answer: Any) -> str | None:
    """Kept guesses and redrawn tokens together must be distributed as the target."""
    target, draft = [0.5, 0.3, 0.2], [0.2, 0.7, 0.1]
    kept = [min(p, q) for p, q in zip(target, draft, strict=True)]
    again = answer(target, draft)
    whole = [k + (1 - sum(kept)) * r for k, r in zip(kept, again, strict=True)]
    if all(math.isclose(w, p) for w, p in zip(whole, target, strict=True)):
        return None
    return "min(p, q) + (1 - sum of min(p, q)) * redraw must be p again, for every token."


_TEXT = [5, 6, 7, 1, 5, 6, 8, 2, 5, 6]

EXERCISES = (
    Exercise(
        id="08.1",
        task="Mean tokens of a step with k guesses, each kept with the same chance: "
        "tokens_per_step(acceptance, guesses)",
        cases=(
            case(0.5, 3, gives=1.875),
            case(0.8, 2, gives=2.44, hint="The paper's table has this row."),
            case(1.0, 10, gives=11.0, hint="All right: the guesses and the target's own token."),
            case(0.0, 4, gives=1.0, hint="All wrong: the target's own token remains."),
            case(0.7, 0, gives=1.0),
        ),
        mistakes=(
            Mistake("Not every guess counts by itself: one wrong guess ends all behind it.",
                    lambda a, k: 1 + a * k),
            Mistake("The target's own token is missing.",
                    lambda a, k: sum(a**i for i in range(1, k + 1))),
            Mistake("One power too few.", lambda a, k: sum(a**i for i in range(max(1, k)))),
        ),
    ),
    Exercise(
        id="08.2",
        task="Speed-up of such steps over plain ones: "
        "gain(tokens, guesses, draft_cost, check_cost); costs in plain steps",
        cases=(
            case(2.44, 2, 0.0, 1.0, gives=2.44),
            case(2.0, 3, 0.25, 1.25, gives=1.0),
            case(2.0, 5, 0.3, 1.5, gives=2 / 3, hint="A dear draft that guesses far is slower."),
        ),
        mistakes=(
            Mistake("The draft takes a step per guess.", lambda e, k, c, v: e / (c + v)),
            Mistake("A check is not free here.", lambda e, k, c, v: e / (k * c + 1)),
            Mistake("Checking is one step, whatever the number of guesses.",
                    lambda e, k, c, v: e / (k * (c + v))),
        ),
    ),
    Exercise(
        id="08.3",
        task="Greedy: written(guess, target) -> tokens that this step writes; target is the "
        "target's own choice at each guess, and one behind the last",
        cases=(
            case([4, 5, 6], [4, 5, 9, 7], gives=[4, 5, 9]),
            case([4, 5, 6], [4, 5, 6, 7], gives=[4, 5, 6, 7]),
            case([4, 5, 6], [1, 5, 6, 7], gives=[1], hint="Behind a wrong one, right is luck."),
            case([], [3], gives=[3], hint="A step without a guess is a plain step."),
        ),
        mistakes=(
            Mistake("The target's token at the first wrong place comes free.",
                    lambda g, t: [a for a, b in zip(g, t, strict=False) if a == b]),
            Mistake("Behind the first wrong guess the target saw a wrong text.",
                    lambda g, t: [a for a, b in zip(g, t, strict=False) if a == b] + t[-1:]),
            Mistake("Guesses that the target would not write are not kept.", lambda g, t: t),
        ),
    ),
    Exercise(
        id="08.4",
        task="n-gram lookup: look_up(tokens, ending, guesses) -> what followed the last `ending` "
        "tokens at their first place, at most `guesses` tokens",
        cases=(
            case(_TEXT, 2, 3, gives=[7, 1, 5]),
            case(_TEXT, 3, 3, gives=[], hint="[2, 5, 6] stands at the end only."),
            case([1, 2, 9, 1, 2], 2, 8, gives=[9, 1, 2], hint="No more than there is."),
            case([3, 3, 3, 3], 2, 5, gives=[3, 3], hint="The first place may reach into the end."),
            case([1, 2], 2, 4, gives=[], hint="The ending itself is no earlier place."),
        ),
        mistakes=(
            Mistake("The first place, not the last one.", lambda t, n, k: next(
                (t[i + n : i + n + k] for i in range(len(t) - n - 1, -1, -1)
                 if t[i : i + n] == t[-n:]), [])),
            Mistake("What followed the place, not the place itself.", lambda t, n, k: next(
                (t[i : i + k] for i in range(len(t) - n) if t[i : i + n] == t[-n:]), [])),
        ),
    ),
    Exercise(
        id="08.5",
        task="Speed-up when only a share of the steps has a guess: mixed_gain(share, tokens, "
        "cost); tokens and cost are of a step with a guess",
        cases=(
            case(1.0, 3.0, 2.0, gives=1.5),
            case(0.0, 3.0, 2.0, gives=1.0),
            case(0.5, 3.0, 2.0, gives=4 / 3, hint="Means of tokens and of costs, then the ratio."),
            case(0.2, 1.0, 2.5, gives=1 / 1.3, hint="Wrong guesses cost and give nothing."),
        ),
        properties=(_break_even_does_not_depend_on_the_share,),
        mistakes=(
            Mistake("A mean of ratios is not the ratio of means.",
                    lambda s, e, c: 1 - s + s * e / c),
            Mistake("Steps without a guess cost something too.",
                    lambda s, e, c: (1 + s * (e - 1)) / (s * c) if s else 1.0),
        ),
    ),
    Exercise(
        id="08.6",
        task="A guess was rejected. redraw(target, draft) -> the distribution to draw from now; "
        "both are lists of probabilities",
        cases=(
            case([0.5, 0.3, 0.2], [0.2, 0.7, 0.1], gives=[0.75, 0.0, 0.25]),
            case([0.5, 0.3, 0.2], [0.0, 1.0, 0.0], gives=[5 / 7, 0.0, 2 / 7],
                 hint="A guess that was certain must not come again."),
            case([0.9, 0.1], [0.5, 0.5], gives=[1.0, 0.0]),
        ),
        properties=(_the_redrawn_mends_the_kept,),
        mistakes=(
            Mistake("Drawing from the target would give what the draft likes twice.",
                    lambda p, q: p),
            Mistake("The parts must sum to 1.",
                    lambda p, q: [max(0.0, a - b) for a, b in zip(p, q, strict=True)]),
        ),
    ),
)  # fmt: skip
