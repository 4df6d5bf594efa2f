"""Exercises of notebook 14: which GPU should get the request?"""

from __future__ import annotations

from itertools import pairwise
from math import ceil, floor
from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case

INF = float("inf")


def _wait_grows_with_the_load(wait: Any) -> str | None:
    """Fuller is slower, and faster than in proportion."""
    found = [wait(rate, 0.1) for rate in (1, 3, 5, 7, 9)]
    steps = [b - a for a, b in pairwise(found)]
    fine = steps == sorted(steps) and steps[0] > 0
    return (
        None if fine else f"1, 3, 5, 7, 9 requests/s of 0.1 s each gave {found}: it must curve up."
    )


def _steps_add_up(run: Any) -> str | None:
    """A run is its steps, one by one."""
    whole, sum_s = run(7, 0.5, 0.25), sum(0.5 + 0.25 * i for i in range(7))
    return None if abs(whole - sum_s) < 1e-9 else f"seven steps gave {whole}, one by one {sum_s}."


def _idle_replicas_cost(energy: Any) -> str | None:
    """One more idle replica-second costs its idle power."""
    more = energy(300.0, 60.0, 40.0, 110.0, 10) - energy(300.0, 60.0, 40.0, 100.0, 10)
    return None if abs(more - 60.0) < 1e-6 else f"10 idle seconds more gave {more} J a request."


EXERCISES = (
    Exercise(
        id="14.1",
        task="Mean wait of Poisson arrivals at one seat with equal service times, infinite where "
        "the seat cannot keep up: mean_wait_s(rate_per_s, service_s)",
        cases=(
            case(5.0, 0.1, gives=0.05, hint="Half full: the wait is half a service."),
            case(8.0, 0.1, gives=0.2),
            case(9.0, 0.1, gives=0.45),
            case(10.0, 0.1, gives=INF, hint="At rho = 1 the queue never ends."),
            case(20.0, 0.1, gives=INF, hint="Beyond rho = 1 the formula turns negative."),
        ),
        properties=(_wait_grows_with_the_load,),
        mistakes=(
            Mistake(
                "That is M/M/1; equal service times halve the wait.",
                lambda r, s: r * s * s / (1 - r * s) if r * s < 1 else INF,
            ),
            Mistake(
                "That holds the service itself; the wait ends where it begins.",
                lambda r, s: s + r * s * s / (2 * (1 - r * s)) if r * s < 1 else INF,
            ),
            Mistake(
                "A seat that cannot keep up has an endless queue, not a negative one.",
                lambda r, s: r * s * s / (2 * (1 - r * s)) if r * s != 1 else INF,
            ),
        ),
    ),
    Exercise(
        id="14.2",
        task="Seconds of n decode steps, the first of first_s, each longer than the one before by "
        "growth_s, without a loop: run_s(steps, first_s, growth_s)",
        cases=(
            case(1, 0.02, 0.001, gives=0.02, hint="One step has not grown yet."),
            case(10, 0.02, 0.0, gives=0.2),
            case(10, 0.02, 0.001, gives=0.2 + 45 * 0.001),
            case(0, 0.02, 0.001, gives=0.0),
        ),
        properties=(_steps_add_up,),
        mistakes=(
            Mistake("The first step has not grown.", lambda n, a, g: n * a + g * n * (n + 1) / 2),
            Mistake("Growth adds up from step to step.", lambda n, a, g: n * a + g * (n - 1)),
            Mistake("Mean growth is (n - 1) / 2 per step.", lambda n, a, g: n * (a + g * (n - 1))),
        ),
    ),
    Exercise(
        id="14.3",
        task="The fewest replicas of which each carries at most a share of its saturation, at "
        "least one: replicas_needed(rate_per_s, saturation_per_s, share)",
        cases=(
            case(10.0, 4.0, 1.0, gives=3),
            case(10.0, 4.0, 0.5, gives=5),
            case(10.0, 4.0, 0.8, gives=4, hint="10 / 3.2 is a little more than 3."),
            case(0.5, 4.0, 0.8, gives=1, hint="A service has at least one replica."),
            case(0.0, 4.0, 0.8, gives=1),
        ),
        mistakes=(
            Mistake(
                "Round up: a part of a replica is one more.",
                lambda r, s, u: max(1, floor(r / (s * u))),
            ),
            Mistake("Each replica carries only its share.", lambda r, s, u: max(1, ceil(r / s))),
            Mistake("At least one.", lambda r, s, u: ceil(r / (s * u))),
        ),
    ),
    Exercise(
        id="14.4",
        task="Leading blocks of a prompt that a cache has: blocks_hit(seen, block_ids)",
        cases=(
            case({1, 2, 3}, (1, 2, 3, 4), gives=3),
            case({1, 2, 4}, (1, 2, 3, 4), gives=2, hint="After a miss nothing can be used."),
            case({2, 3}, (1, 2, 3), gives=0),
            case({1, 2}, (1, 2), gives=2),
            case(set(), (1,), gives=0),
            case({1}, (), gives=0),
        ),
        mistakes=(
            Mistake(
                "Keys and values depend on all tokens before: stop at the first miss.",
                lambda seen, ids: sum(k in seen for k in ids),
            ),
            Mistake(
                "Count the blocks, whole or not at all is too strict.",
                lambda seen, ids: len(ids) if set(ids) <= set(seen) else 0,
            ),
        ),
    ),
    Exercise(
        id="14.5",
        task="Of two replicas drawn at random the less loaded, the first of equals: "
        "better_of_two(loads, first, second)",
        cases=(
            case([3, 1, 2], 0, 1, gives=1),
            case([3, 1, 2], 1, 0, gives=1),
            case([3, 1, 2], 2, 0, gives=2, hint="Only the two that were drawn are looked at."),
            case([2, 2, 0], 1, 0, gives=1, hint="The first of equals."),
            case([5, 5], 1, 1, gives=1, hint="The same one may be drawn twice."),
        ),
        mistakes=(
            Mistake(
                "Only two replicas are asked; that is least-requests.",
                lambda loads, a, b: min(range(len(loads)), key=lambda i: loads[i]),
            ),
            Mistake("Of equals the first.", lambda loads, a, b: a if loads[a] < loads[b] else b),
            Mistake("The less loaded one.", lambda loads, a, b: a if loads[a] >= loads[b] else b),
        ),
    ),
    Exercise(
        id="14.6",
        task="Energy of a request in J where replicas are up for up_s seconds in all and compute "
        "for busy_s of them: energy_per_request_j(busy_w, idle_w, busy_s, up_s, requests)",
        cases=(
            case(300.0, 60.0, 40.0, 100.0, 12, gives=1300.0),
            case(300.0, 0.0, 40.0, 100.0, 12, gives=1000.0),
            case(300.0, 60.0, 100.0, 100.0, 10, gives=3000.0, hint="Nothing is idle here."),
            case(300.0, 60.0, 0.0, 100.0, 1, gives=6000.0),
        ),
        properties=(_idle_replicas_cost,),
        mistakes=(
            Mistake(
                "Replicas that wait draw power too.",
                lambda busy, idle, b, up, n: busy * b / n,
            ),
            Mistake(
                "A replica is either busy or idle: its busy time is not idle time too.",
                lambda busy, idle, b, up, n: (busy * b + idle * up) / n,
            ),
            Mistake(
                "Idle time draws idle power.",
                lambda busy, idle, b, up, n: busy * up / n,
            ),
        ),
    ),
)
