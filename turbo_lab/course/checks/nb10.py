"""Exercises of notebook 10: bubble, decode round, kept micro-batches, loads, drops, sent states."""

from __future__ import annotations

import math
from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case


def _no_faster_than_the_slowest_stage(answer: Any) -> str | None:
    """In a round every micro-batch passes the slowest stage once, and its own token all stages."""
    for stage_s, m in (([1.0, 3.0], 5), ([2.0, 2.0, 2.0], 2), ([4.0], 3)):
        told = answer(stage_s, m)
        if told < m * max(stage_s) - 1e-9:
            return f"round_s({stage_s}, {m}): the slowest stage alone needs {m * max(stage_s):g}."
        if told < sum(stage_s) - 1e-9:
            return f"round_s({stage_s}, {m}): one token alone needs {sum(stage_s):g}."
    return None


def _the_ratio_to_tensor_parallelism(answer: Any) -> str | None:
    """Tensor parallelism sends 4 T (n-1)/n hidden states; the ratio must be k / 2n."""
    for tokens, k, n in ((64, 2, 2), (96, 8, 4), (128, 1, 8)):
        told = answer(tokens, k, n) / (4 * tokens * (n - 1) / n)
        if not math.isclose(told, k / (2 * n)):
            return f"For k = {k} on {n} ranks it must be {k / (2 * n):g} of tensor parallelism."
    return None


_LOGITS = [[3.0, 1.0, 2.0, 0.0], [0.0, 1.0, 2.0, 3.0], [9.0, 1.0, 8.0, 2.0]]

EXERCISES = (
    Exercise(
        id="10.1",
        task="Idle share of all time with equal stages: bubble(stages, micro_batches)",
        cases=(
            case(8, 24, gives=7 / 31, hint="The published configuration: 22.58 %."),
            case(4, 8, gives=3 / 11),
            case(1, 5, gives=0.0, hint="One stage waits for nobody."),
            case(4, 1, gives=0.75, hint="Only one of four stages works at a time."),
        ),
        mistakes=(
            Mistake("That is over the time of the work; asked is the share of all time.",
                    lambda p, m: (p - 1) / m),
            Mistake("p - 1 slots are idle, not p.", lambda p, m: p / (m + p)),
            Mistake("That is the share in which a stage works.", lambda p, m: m / (m + p - 1)),
        ),
    ),
    Exercise(
        id="10.2",
        task="Seconds in which every micro-batch gets one token, when decoding runs evenly: "
        "round_s(stage_s, micro_batches); stage_s are the seconds of one micro-batch",
        cases=(
            case([1.0, 1.0], 2, gives=2.0),
            case([1.0, 1.0], 1, gives=2.0, hint="A token needs the one before it."),
            case([1.0, 3.0], 4, gives=12.0, hint="The slowest stage sets the pace."),
            case([2.0, 2.0, 2.0], 2, gives=6.0, hint="Fewer micro-batches than stages."),
        ),
        properties=(_no_faster_than_the_slowest_stage,),
        mistakes=(
            Mistake("That is one forward pass of m micro-batches; decoding goes on and on.",
                    lambda s, m: sum(s) + (m - 1) * max(s)),
            Mistake("Stages work at the same time.", lambda s, m: m * sum(s)),
            Mistake("With few micro-batches the way of one token is longer.",
                    lambda s, m: m * max(s)),
        ),
    ),
    Exercise(
        id="10.3",
        task="Most micro-batches whose activations a stage keeps at once: "
        "kept(schedule, stages, stage, micro_batches); stages count from 0",
        cases=(
            case("GPipe", 4, 0, 8, gives=8),
            case("1F1B", 4, 0, 8, gives=4),
            case("1F1B", 4, 3, 8, gives=1, hint="The last stage goes back at once."),
            case("1F1B", 4, 0, 2, gives=2, hint="No more than there are."),
        ),
        mistakes=(
            Mistake("1F1B keeps fewer towards the end of the pipeline.",
                    lambda name, p, s, m: m if name == "GPipe" else min(m, p)),
            Mistake("GPipe keeps all of them until the last forward is done.",
                    lambda name, p, s, m: min(m, p - s)),
            Mistake("One more: its own forward comes before the first backward.",
                    lambda name, p, s, m: m if name == "GPipe" else min(m, p - 1 - s)),
        ),
    ),
    Exercise(
        id="10.4",
        task="Tokens of each expert: loads(logits, k); logits has a row for each token, and each "
        "token takes its k best experts",
        cases=(
            case(_LOGITS, 1, gives=[2, 0, 0, 1]),
            case(_LOGITS, 2, gives=[2, 0, 3, 1]),
            case([[0.0, 0.0, 0.0]], 2, gives=[1, 1, 0], hint="Of equals, the lower number."),
            case(_LOGITS, 4, gives=[3, 3, 3, 3], hint="k = E: every token takes every expert."),
        ),
        mistakes=(
            Mistake("Count tokens, do not add logits.",
                    lambda rows, k: [sum(c) for c in zip(*rows, strict=True)]),
            Mistake("Those are the k worst.", lambda rows, k: [
                sum(e in sorted(range(len(r)), key=lambda e, r=r: r[e])[:k] for r in rows)
                for e in range(len(rows[0]))]),
            Mistake("k experts for each token, not one.", lambda rows, k: [
                sum(max(range(len(r)), key=lambda e, r=r: r[e]) == e for r in rows)
                for e in range(len(rows[0]))]),
        ),
    ),
    Exercise(
        id="10.5",
        task="Share of the token-expert pairs that are dropped: dropped(loads, factor); an expert "
        "has factor times the mean load as places, rounded up",
        cases=(
            case([4, 4, 4, 4], 1.0, gives=0.0),
            case([10, 2, 2, 2], 1.0, gives=6 / 16),
            case([10, 2, 2, 2], 2.5, gives=0.0, hint="Places enough for the fullest."),
            case([3, 0, 0, 0], 1.0, gives=2 / 3, hint="0.75 places are one place."),
        ),
        mistakes=(
            Mistake("What one expert has too much, another's free place does not take.",
                    lambda v, f: max(0.0, sum(v) - f * sum(v)) / sum(v)),
            Mistake("Of all pairs, not of the fullest expert.",
                    lambda v, f: max(0, max(v) - math.ceil(f * sum(v) / len(v))) / max(v)),
            Mistake("Places are whole: rounded up.",
                    lambda v, f: sum(max(0.0, x - f * sum(v) / len(v)) for x in v) / sum(v)),
        ),
    ),
    Exercise(
        id="10.6",
        task="Hidden states that leave a rank in one MoE layer, out and back: "
        "sent(tokens, k, ranks); the tokens are shared out evenly, the routing is uniform",
        cases=(
            case(64, 2, 2, gives=64.0),
            case(64, 2, 4, gives=48.0),
            case(64, 8, 1, gives=0.0, hint="One rank sends nothing."),
            case(320, 8, 32, gives=155.0),
        ),
        properties=(_the_ratio_to_tensor_parallelism,),
        mistakes=(
            Mistake("They come back too.", lambda t, k, n: k * t / n * (n - 1) / n),
            Mistake("A rank sends its own tokens, T / n.", lambda t, k, n: 2 * k * t * (n - 1) / n),
            Mistake("One of n experts is on the rank itself.", lambda t, k, n: 2 * k * t / n),
        ),
    ),
)  # fmt: skip
