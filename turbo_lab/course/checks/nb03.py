"""Exercises of notebook 03: what exactly was measured."""

from __future__ import annotations

import itertools
import math
from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case

TWENTY = [float(n) for n in range(1, 21)]
TEN = [3.0, 1.0, 2.0, 10.0, 9.0, 8.0, 4.0, 5.0, 6.0, 7.0]

# One stream of five tokens in three chunks, after a role chunk without text.
W1 = [(0.100, "", 0), (0.100, "a", 1), (0.140, "bc", 2), (0.180, "de", 2)]
W2 = [(0.0, "", 0), (0.100, "a", 1), (0.120, "b", 1)]

GOOD = {"ok": True, "ttft_s": 0.2, "tpot_s": 0.04}
ONE_TOKEN = {"ok": True, "ttft_s": 0.1, "tpot_s": None}
SLOW = {"ok": True, "ttft_s": 0.2, "tpot_s": 0.09}
FAILED = {"ok": False, "ttft_s": None, "tpot_s": None}
W4 = [GOOD] * 6 + [ONE_TOKEN, SLOW, FAILED, FAILED]
STALL = [0.1, 0.1, 0.1, 1.0, 0.1, 0.1, 0.1, 0.1]


def _leaves_the_samples_alone(percentile: Any) -> str | None:
    """The caller's list must keep its order."""
    samples = [3.0, 1.0, 2.0]
    percentile(samples, 50)
    return None if samples == [3.0, 1.0, 2.0] else "The caller's list was changed: sort a copy."


def _ends_are_min_and_max(percentile: Any) -> str | None:
    """P0 is the smallest sample and P100 the largest."""
    ends = percentile(TEN, 0), percentile(TEN, 100)
    return None if ends == (1.0, 10.0) else f"P0 and P100 of {TEN} gave {ends}, not (1.0, 10.0)."


def _script(samples: list[float], p: float) -> float:
    return sorted(samples)[int(len(samples) * p / 100) - 1]


def _nearest_rank(samples: list[float], p: float) -> float:
    return sorted(samples)[max(0, math.ceil(len(samples) * p / 100) - 1)]


def _interpolated(ordered: list[float], p: float) -> float:
    rank = p / 100 * (len(ordered) - 1)
    low = int(rank)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (rank - low)


def _sorts_in_place(samples: list[float], p: float) -> float:
    samples.sort()
    return _interpolated(samples, p)


def _none_in_the_tail(p: float, confidence: float) -> int:
    return math.ceil(math.log(1 - confidence) / math.log(p / 100))


def _two_in_the_tail_on_average(p: float, confidence: float) -> int:
    return round(2 / (1 - p / 100))


def _shown(chunks: list[Any]) -> list[Any]:
    return [chunk for chunk in chunks if chunk[1]]


def _with_wait(chunks: list[Any], tokens: int) -> tuple[float | None, float | None]:
    shown = _shown(chunks)
    return (shown[0][0], shown[-1][0] / tokens) if shown else (None, None)


def _role_chunk_counts(chunks: list[Any], tokens: int) -> tuple[float | None, float | None]:
    if not chunks:
        return None, None
    first = chunks[0][0]
    return first, (chunks[-1][0] - first) / (tokens - 1) if tokens > 1 else None


def _per_chunk(chunks: list[Any], tokens: int) -> tuple[float | None, float | None]:
    shown = _shown(chunks)
    if not shown:
        return None, None
    gaps = len(shown) - 1
    return shown[0][0], (shown[-1][0] - shown[0][0]) / gaps if gaps else None


def _zero_for_one(chunks: list[Any], tokens: int) -> tuple[float | None, float | None]:
    shown = _shown(chunks)
    if not shown:
        return None, None
    later = tokens - shown[0][2]
    return shown[0][0], (shown[-1][0] - shown[0][0]) / later if later else 0.0


def _first_chunk_is_one_token(chunks: list[Any], tokens: int) -> tuple[Any, Any]:
    shown = _shown(chunks)
    if not shown:
        return None, None
    span = shown[-1][0] - shown[0][0]
    return shown[0][0], span / (tokens - 1) if tokens > 1 else None


def _is_good(request: dict[str, Any], ttft: float, tpot: float) -> bool:
    pace = request["tpot_s"]
    return request["ok"] and request["ttft_s"] <= ttft and (pace is None or pace <= tpot)


def _survivors(requests: list[dict[str, Any]], ttft: float, tpot: float) -> float | None:
    answered = [r for r in requests if r["ok"]]
    return sum(_is_good(r, ttft, tpot) for r in answered) / len(answered) if answered else None


def _undefined_misses(requests: list[dict[str, Any]], ttft: float, tpot: float) -> float | None:
    good = [r for r in requests if _is_good(r, ttft, tpot) and r["tpot_s"] is not None]
    return len(good) / len(requests) if requests else None


def _zero_of_none(requests: list[dict[str, Any]], ttft: float, tpot: float) -> float:
    return sum(_is_good(r, ttft, tpot) for r in requests) / max(1, len(requests))


def _never_idle(service: list[float], interval: float) -> list[float]:
    ends = itertools.accumulate(service)
    return [
        max(end - n * interval, s) for n, (end, s) in enumerate(zip(ends, service, strict=True))
    ]


def _mean(requests: list[tuple[int, float]], *, less: int) -> float:
    """Mean TPOT weighted by tokens minus ``less``."""
    return sum((n - less) * t for n, t in requests) / sum(n - less for n, _ in requests)


def _plain(requests: list[tuple[int, float]]) -> float:
    return sum(t for _, t in requests) / len(requests)


EXERCISES = (
    Exercise(
        id="03.1",
        task="Repair the source's P95 script: percentile(samples, p) by linear interpolation, "
        "p from 0 to 100",
        cases=(
            case(TWENTY, 95, gives=19.05, hint="Rank 0.95 * 19 = 18.05, counted from 0."),
            case(TEN, 95, gives=9.55, hint="The samples come in any order."),
            case(TEN, 50, gives=5.5, hint="Ten samples have two middles."),
            case([7.0], 95, gives=7.0),
            case([1.0, 2.0], 25, gives=1.25),
        ),
        properties=(_leaves_the_samples_alone, _ends_are_min_and_max),
        mistakes=(
            Mistake("That is the source's index, int(n * 0.95) - 1.", _script),
            Mistake(
                "That is nearest rank; between two samples a value is interpolated.", _nearest_rank
            ),
            Mistake("The samples were not sorted.", _interpolated),
            Mistake("The caller's list was changed: sort a copy.", _sorts_in_place),
        ),
    ),
    Exercise(
        id="03.2",
        task="How many samples certify a percentile? samples_to_certify(p, confidence)",
        cases=(
            case(50, 0.99, gives=11),
            case(90, 0.99, gives=64),
            case(95, 0.99, gives=130, hint="So the source's 20 samples certify no P95."),
            case(99, 0.99, gives=662),
        ),
        mistakes=(
            Mistake(
                "One sample in the tail is not enough: P[Bin <= 1], not P[Bin = 0].",
                _none_in_the_tail,
            ),
            Mistake(
                "Enough on average is not enough with 99 % confidence.", _two_in_the_tail_on_average
            ),
            Mistake(
                "Twenty samples hold one value above P95 on average, by chance often none.",
                lambda p, confidence: round(1 / (1 - p / 100)),
            ),
        ),
    ),
    Exercise(
        id="03.3",
        task="ttft_and_tpot(chunks, output_tokens); chunks are (seconds after sending, text, "
        "tokens); None for what is undefined",
        cases=(
            case(W1, 5, gives=(0.1, 0.02)),
            case(W2, 2, gives=(0.1, 0.02), hint="The first chunk holds no text."),
            case([(0.05, "a", 1)], 1, gives=(0.05, None), hint="One token has no pace."),
            case(
                [(0.1, "ab", 2), (0.16, "cde", 3)],
                5,
                gives=(0.1, 0.02),
                hint="The first chunk brought two tokens.",
            ),
            case([(0.0, "", 0)], 0, gives=(None, None), hint="No text, no first token."),
        ),
        mistakes=(
            Mistake("This TPOT includes the wait for the first token.", _with_wait),
            Mistake("The role chunk has no text: it is no first token.", _role_chunk_counts),
            Mistake("That is the gap per chunk; a chunk may hold several tokens.", _per_chunk),
            Mistake("Undefined is None; 0 would be a measurement.", _zero_for_one),
            Mistake("The first chunk may bring more than one token.", _first_chunk_is_one_token),
        ),
    ),
    Exercise(
        id="03.4",
        task="Share of requests within both limits, None without requests: "
        "attainment(requests, ttft_slo_s, tpot_slo_s)",
        cases=(
            case(W4, 0.25, 0.05, gives=0.7, hint="6 good, 1 of one token, 1 slow, 2 failed."),
            case([FAILED] * 4, 0.25, 0.05, gives=0.0, hint="All failed: none attained."),
            case([GOOD, ONE_TOKEN], 0.15, 0.05, gives=0.5),
            case([], 0.25, 0.05, gives=None),
        ),
        mistakes=(
            Mistake("Failed requests were left out: survivors look fast.", _survivors),
            Mistake("A one-token reply has no TPOT and cannot miss its limit.", _undefined_misses),
            Mistake("Nothing sent is no attainment of 0: it is unknown.", _zero_of_none),
        ),
    ),
    Exercise(
        id="03.5",
        task="One slot, request i due at i * interval: latencies_from_schedule(service_s, "
        "interval_s)",
        cases=(
            case(
                STALL,
                0.2,
                gives=[0.1, 0.1, 0.1, 1.0, 0.9, 0.8, 0.7, 0.6],
                hint="While the 4th runs, the others are already due.",
            ),
            case([0.1, 0.1], 0.2, gives=[0.1, 0.1], hint="The slot is free again: no wait."),
            case([0.3, 0.3, 0.3], 0.1, gives=[0.3, 0.5, 0.7]),
            case([0.3, 0.1, 0.1, 0.3], 1.0, gives=[0.3, 0.1, 0.1, 0.3]),
            case([], 0.2, gives=[]),
        ),
        mistakes=(
            Mistake(
                "That counts from the sending and hides the wait (coordinated omission).",
                lambda service, interval: list(service),
            ),
            Mistake("An idle slot waits for the next due time.", _never_idle),
            Mistake(
                "The wait does not grow when requests come slower than they are served.",
                lambda service, interval: list(itertools.accumulate(service)),
            ),
        ),
    ),
    Exercise(
        id="03.6",
        task="Mean TPOT weighted by request, by gap, by token: three_means(requests), requests are "
        "(output_tokens, tpot)",
        cases=(
            case([(5, 200.0), (20, 100.0)], gives=(150.0, 2700 / 23, 120.0)),
            case([(10, 30.0)], gives=(30.0, 30.0, 30.0)),
            case([(2, 10.0), (2, 20.0)], gives=(15.0, 15.0, 15.0)),
        ),
        mistakes=(
            Mistake(
                "A request of n tokens has n - 1 gaps.",
                lambda rs: (_plain(rs), _mean(rs, less=0), _mean(rs, less=0)),
            ),
            Mistake(
                "The order is: by request, by gap, by token.",
                lambda rs: (_plain(rs), _mean(rs, less=0), _mean(rs, less=1)),
            ),
            Mistake("One number three times: the weights differ.", lambda rs: (_plain(rs),) * 3),
        ),
    ),
)
