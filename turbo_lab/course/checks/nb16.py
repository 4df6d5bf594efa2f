"""Exercises of notebook 16: the server is slow. Now what?"""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case


def _more_waves_more_queue(share: Any) -> str | None:
    """The more waves, the larger the queue's share; it never reaches 1."""
    found = [share(waves) for waves in (1, 2, 5, 50, 5000)]
    rising = all(a < b for a, b in pairwise(found))
    return None if rising and found[-1] < 1 else f"1, 2, 5, 50, 5000 waves gave {found}."


LOG = (
    "INFO loading weights",
    "ERROR ValueError: 9 heads, 2 ranks",
    "ERROR EngineDeadError: see root cause above",
    "ERROR RuntimeError: Engine core initialization failed",
)


EXERCISES = (
    Exercise(
        id="16.1",
        task="Share of the end-to-end time that is queue, when `waves` times as many equal "
        "requests as seats come at once: queue_share(waves)",
        cases=(
            case(1, gives=0.0, hint="One wave: nobody waits."),
            case(2, gives=1 / 3, hint="Half wait one service, none waits two."),
            case(3, gives=0.5),
            case(9, gives=0.8),
        ),
        properties=(_more_waves_more_queue,),
        mistakes=(
            Mistake("That is the wait of the last wave.", lambda w: (w - 1) / w),
            Mistake("End to end holds the service too.", lambda w: (w - 1) / 2),
            Mistake("The mean of w waits, 0 to w - 1 services, is (w - 1) / 2.",
                    lambda w: w / (w + 2) if w > 1 else 0.0),
        ),
    ),
    Exercise(
        id="16.2",
        task="How many requests of prompt + reply tokens a KV pool holds at once; one block "
        "belongs to nobody: requests_that_fit(blocks, block_tokens, prompt, reply)",
        cases=(
            case(12, 32, 16, 80, gives=3),
            case(13, 32, 16, 17, gives=6, hint="A started block is a whole one."),
            case(4, 32, 64, 64, gives=0, hint="Three usable blocks cannot hold four."),
            case(101, 16, 8, 8, gives=100),
        ),
        mistakes=(
            Mistake("One block belongs to nobody.",
                    lambda b, t, p, r: b // ceil((p + r) / t)),
            Mistake("A started block is a whole one.",
                    lambda b, t, p, r: (b - 1) * t // (p + r)),
            Mistake("Prompt and reply share their blocks.",
                    lambda b, t, p, r: (b - 1) // (ceil(p / t) + ceil(r / t))),
        ),
    ),
    Exercise(
        id="16.3",
        task="Precision and recall over (expected, named) pairs of sets, None where there is "
        "nothing to divide by: precision_recall(pairs)",
        cases=(
            case([({"a"}, {"a"})], gives=(1.0, 1.0)),
            case([({"a"}, {"a", "b"}), (set(), {"c"})], gives=(1 / 3, 1.0),
                 hint="A finding on a healthy server is wrong too."),
            case([({"a", "b"}, {"a"}), ({"c"}, set())], gives=(1.0, 1 / 3)),
            case([(set(), set())], gives=(None, None)),
        ),
        mistakes=(
            Mistake("Precision divides by what was named, recall by what was expected.",
                    lambda pairs: _shares(pairs, swap=True)),
            Mistake("Count over all pairs, also those without a fault.",
                    lambda pairs: _shares([p for p in pairs if p[0]])),
        ),
    ),
    Exercise(
        id="16.4",
        task="Number of the line that tells the root cause: the first that begins with ERROR and "
        "is no consequence (EngineDeadError, initialization failed), None for none: "
        "root_line(lines)",
        cases=(
            case(list(LOG), gives=1),
            case([LOG[0], *LOG[2:]], gives=None, hint="These two only say that something was."),
            case([LOG[2], LOG[1]], gives=1, hint="Other processes' lines may come before."),
            case([], gives=None),
        ),
        mistakes=(
            Mistake("Consequences are no causes.",
                    lambda lines: next((n for n, x in enumerate(lines) if "ERROR" in x), None)),
            Mistake("The last error is the consequence.",
                    lambda lines: max((n for n, x in enumerate(lines) if "ERROR" in x),
                                      default=None)),
        ),
    ),
    Exercise(
        id="16.5",
        task="Where most of a request's time went, 'queue', 'engine' or 'outside', from the "
        "server's queue and end-to-end time and the client's end-to-end time, all in seconds: "
        "slowest_place(queue_s, server_s, client_s)",
        cases=(
            case(2.0, 3.0, 3.1, gives="queue"),
            case(0.1, 3.0, 3.1, gives="engine"),
            case(0.1, 1.0, 6.0, gives="outside", hint="The client waited for its own reading."),
            case(1.0, 1.5, 2.0, gives="queue"),
        ),
        mistakes=(
            Mistake("The server's time holds the queue: take it off.",
                    lambda q, s, c: max({"queue": q, "engine": s, "outside": c - s}.items(),
                                        key=lambda kv: kv[1])[0]),
            Mistake("The client's time holds the server's: take it off.",
                    lambda q, s, c: max({"queue": q, "engine": s - q, "outside": c}.items(),
                                        key=lambda kv: kv[1])[0]),
        ),
    ),
)  # fmt: skip


def _shares(pairs: Any, *, swap: bool = False) -> tuple[float | None, float | None]:
    right = sum(len(want & got) for want, got in pairs)
    named = sum(len(got) for _, got in pairs)
    wanted = sum(len(want) for want, _ in pairs)
    both = (right / named if named else None, right / wanted if wanted else None)
    return both[::-1] if swap else both  # type: ignore[return-value]
