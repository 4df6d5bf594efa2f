"""Exercises of notebook 09: cuts, exchanged and sent bytes, KV heads, shared cores, break-even."""

from __future__ import annotations

import math
from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case

_COLUMN = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_CUTS = {**dict.fromkeys(_COLUMN, "column"), "o_proj": "row", "down_proj": "row"}


def _never_twice_the_size(answer: Any) -> str | None:
    """However many ranks there are, each sends less than twice the vector."""
    for ranks in (2, 8, 64, 1024):
        if not 1.0 <= answer(1.0, ranks) < 2.0:
            return f"With {ranks} ranks each sends from once to twice the size."
    return None


def _more_ranks_ask_for_a_faster_network(answer: Any) -> str | None:
    """Each rank saves less than the one before it and adds as many messages."""
    found = [answer(0.02, ranks, 30) for ranks in (2, 4, 8)]
    if found == sorted(found, reverse=True):
        return None
    return "With more ranks the latency may be smaller only, never larger."


EXERCISES = (
    Exercise(
        id="09.1",
        task="Which matrix is cut by 'column' (a rank keeps some outputs), which by 'row' (some "
        "inputs)?",
        expected=_CUTS,
        mistakes=(
            Mistake("Then the last products need whole inputs, which nobody has.",
                    dict.fromkeys(_CUTS, "column")),
            Mistake("Softmax and SiLU need complete values, not partial sums.",
                    {k: "row" if v == "column" else "column" for k, v in _CUTS.items()}),
            Mistake("gate and up are multiplied value by value: both must be cut alike.",
                    {**_CUTS, "up_proj": "row"}),
        ),
    ),
    Exercise(
        id="09.2",
        task="Bytes that the all-reduces of all layers work on in one step: "
        "exchanged_bytes(layers, hidden, tokens, element_bytes)",
        cases=(
            case(1, 1, 1, 1, gives=2),
            case(30, 576, 1, 4, gives=138_240, hint="Two all-reduces per layer."),
            case(80, 8192, 2048, 2, gives=5_368_709_120, hint="A prefill sends for every token."),
        ),
        mistakes=(
            Mistake("Attention and feed-forward part have one each.",
                    lambda layers, h, t, e: layers * h * t * e),
            Mistake("Every token of the step has a hidden state of its own.",
                    lambda layers, h, t, e: 2 * layers * h * e),
            Mistake("These are elements, not bytes.", lambda layers, h, t, e: 2 * layers * h * t),
        ),
    ),
    Exercise(
        id="09.3",
        task="Bytes that each rank sends in an all-reduce on a ring: sent_by_rank(size_bytes, "
        "ranks)",
        cases=(
            case(1000, 1, gives=0.0, hint="Alone there is nobody to send to."),
            case(1000, 2, gives=1000.0),
            case(900, 3, gives=1200.0, hint="Summing up takes n - 1 rounds, spreading n - 1 more."),
        ),
        properties=(_never_twice_the_size,),
        mistakes=(
            Mistake("The sums have to be spread again.", lambda s, n: (n - 1) / n * s),
            Mistake("In each round a rank sends one n-th, not everything.",
                    lambda s, n: 2 * (n - 1) * s),
            Mistake("A rank's own piece is never sent to itself.", lambda s, n: 2 * s),
        ),
    ),
    Exercise(
        id="09.4",
        task="kv_heads(query_heads, kv_heads, ranks) -> (KV heads on a rank, ranks that hold the "
        "same one), None where the heads do not divide",
        cases=(
            case(9, 3, 3, gives=(1, 1)),
            case(32, 8, 4, gives=(2, 1)),
            case(9, 3, 9, gives=(1, 3), hint="No rank can do without: the same head on three."),
            case(64, 1, 8, gives=(1, 8)),
            case(9, 3, 2, gives=None, hint="Nine query heads have no half."),
            case(12, 4, 6, gives=None, hint="Four KV heads go into six ranks unevenly."),
        ),
        mistakes=(
            Mistake("A head cannot be cut to a fraction; it is copied.",
                    lambda q, k, n: None if q % n else (k / n, 1)),
            Mistake("The query heads must divide too.",
                    lambda q, k, n: (max(1, k // n), max(1, n // k))),
            Mistake("Fewer KV heads than ranks are allowed where they divide the ranks.",
                    lambda q, k, n: None if q % n or k % n else (k // n, 1)),
        ),
    ),
    Exercise(
        id="09.5",
        task="Seconds of a split step where ranks share cores and a share cannot be cut further: "
        "step_s(share_s, exchange_s, ranks, cores)",
        cases=(
            case(0.010, 0.002, 4, 4, gives=0.012),
            case(0.010, 0.002, 2, 8, gives=0.012, hint="Idle cores help nobody."),
            case(0.010, 0.002, 3, 2, gives=0.022, hint="The third share waits for a free core."),
            case(0.010, 0.0, 9, 2, gives=0.050),
        ),
        mistakes=(
            Mistake("Not every rank has a core of its own.", lambda s, e, n, c: s + e),
            Mistake("Half a turn does not exist: all wait for the last share.",
                    lambda s, e, n, c: max(1, n / c) * s + e),
            Mistake("The exchange happens once, after all turns.",
                    lambda s, e, n, c: math.ceil(n / c) * (s + e)),
        ),
    ),
    Exercise(
        id="09.6",
        task="The latency per message at which splitting neither gains nor loses, for so few bytes "
        "that only latency counts: break_even_latency_s(whole_s, ranks, layers); a ring, two "
        "all-reduces per layer",
        cases=(
            case(0.024, 3, 30, gives=0.024 / 360, hint="Saved: t (1 - 1/n). Count the messages."),
            case(1.0, 2, 1, gives=0.125),
            case(0.04, 8, 80, gives=1.5625e-5, hint="Sixteen microseconds for a 70B model."),
        ),
        properties=(_more_ranks_ask_for_a_faster_network,),
        mistakes=(
            Mistake("A rank does its own share still: only 1 - 1/n is saved.",
                    lambda t, n, layers: t / (4 * layers * (n - 1))),
            Mistake("An all-reduce is 2 (n - 1) messages, one after the other.",
                    lambda t, n, layers: t * (1 - 1 / n) / (2 * layers)),
            Mistake("Two all-reduces per layer.",
                    lambda t, n, layers: t / (2 * layers * n)),
        ),
    ),
)  # fmt: skip
