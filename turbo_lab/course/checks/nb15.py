"""Exercises of notebook 15: reading papers."""

from __future__ import annotations

from math import ceil, inf
from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case

Claims = list[dict[str, Any]]

KERNEL = {
    "resource": "compute",
    "stage": "prefill",
    "deployment": "single_node",
    "hardware_coupling": "high",
    "layer": "compute",
}
LAYERS = {
    "online softmax in one kernel": "compute",
    "weights in 4 bits": "model_parameter",
    "reuse of common prefixes": "runtime",
    "a freed seat is filled at the next step": "runtime",
    "pools for prefill and decode": "system_and_network",
    "pruning of weights": "model_parameter",
}


def _claim(*changed: str, against: str | None = "mainstream", counted: str = "all") -> dict:
    return {"changed": list(changed), "against": against, "counted": counted}


def _traps(claims: Claims, *, itself: str = "only", naive: bool = True, lost: bool = True) -> Any:
    """The rule with one of its parts left out or wrong."""
    ids = {"precision": "precision_dividend", "batch": "batch_changed"}
    found = {ids[name] for one in claims for name in one["changed"] if name in ids}
    kinds = [one["against"] for one in claims]
    if lost and any(one["counted"] == "survivors" for one in claims):
        found.add("percentile_of_survivors")
    if naive and "naive" in kinds:
        found.add("weak_baseline")
    only = {"only": set(kinds) - {None} == {"itself"}, "any": "itself" in kinds,
            "strict": set(kinds) == {"itself"}}  # fmt: skip
    if only[itself]:
        found.add("compared_only_with_itself")
    return sorted(found)


def _of_survivors(latencies: list[float], timeout: float, p: float) -> float:
    kept = sorted(value for value in latencies if value <= timeout)
    return kept[max(1, ceil(p / 100 * len(kept))) - 1] if kept else inf


def _lost_as_timeout(latencies: list[float], timeout: float, p: float) -> float:
    waited = sorted(min(value, timeout) for value in latencies)
    return waited[max(1, ceil(p / 100 * len(waited))) - 1]


def _no_timeout(latencies: list[float], timeout: float, p: float) -> float:
    ordered = sorted(latencies)
    return ordered[max(1, ceil(p / 100 * len(ordered))) - 1]


def _cut_rank(latencies: list[float], timeout: float, p: float) -> float:
    waited = sorted(value if value <= timeout else inf for value in latencies)
    return waited[max(1, int(p / 100 * len(waited))) - 1]


def _edge_is_lost(latencies: list[float], timeout: float, p: float) -> float:
    waited = sorted(value if value < timeout else inf for value in latencies)
    return waited[max(1, ceil(p / 100 * len(waited))) - 1]


def _losing_more_never_helps(answer: Any) -> str | None:
    """A shorter time-out must not make the percentile better."""
    latencies = [0.5 * k for k in range(1, 21)]
    found = [answer(latencies, limit, 90) for limit in (11.0, 9.0, 5.0, 1.0)]
    fine = found == sorted(found)
    return None if fine else f"time-outs 11, 9, 5, 1 s gave {found}: giving up looked faster."


def _transfer(needs: list, have: list, in_engine: bool, runs_small: bool, wrong: str) -> list[str]:
    missing = set(needs) - set(have)
    now = in_engine if wrong == "ignores hardware" else in_engine and not missing
    if wrong == "hardware is enough":
        now = not missing
    small = runs_small and not missing if wrong == "small needs all" else runs_small
    bought = bool(needs) if wrong == "buys again" else bool(missing)
    not_now = bool(missing) if wrong == "engine forgotten" else not now
    answers = {"usable_now": now, "not_now": not_now, "testable_small": small,
               "needs_purchase": bought}  # fmt: skip
    return [question for question, yes in answers.items() if yes]


def _wrong(kind: str) -> Any:
    return lambda needs, have, in_engine, small: _transfer(needs, have, in_engine, small, kind)


EXERCISES = (
    Exercise(
        id="15.1",
        task="Place FlashAttention-3 on the four axes and its layer: resource, stage, deployment, "
        "hardware_coupling, layer",
        expected=KERNEL,
        mistakes=(
            Mistake("A prompt has thousands of queries at once; a decode step has one per request "
                    "and waits for memory.", {**KERNEL, "stage": "decode"}),
            Mistake("It uses what only one generation of cards has.",
                    {**KERNEL, "hardware_coupling": "low"}),
            Mistake("Its 8-bit path is an option; what is new is the kernel.",
                    {**KERNEL, "layer": "model_parameter"}),
            Mistake("Version 2 already moved few bytes; version 3 keeps the arithmetic busy.",
                    {**KERNEL, "resource": "memory"}),
            Mistake("No second host takes part.", {**KERNEL, "deployment": "distributed"}),
        ),
    ),
    Exercise(
        id="15.2",
        task="The layer of each method: compute, model_parameter, runtime or system_and_network",
        expected=LAYERS,
        mistakes=(
            Mistake("Prefixes are kept by the engine's memory manager, not by the model.",
                    {**LAYERS, "reuse of common prefixes": "model_parameter"}),
            Mistake("Two pools are two sets of machines with a link between them.",
                    {**LAYERS, "pools for prefill and decode": "runtime"}),
            Mistake("A kernel is an operator.",
                    {**LAYERS, "online softmax in one kernel": "runtime"}),
            Mistake("Fewer bits change the weights themselves.",
                    {**LAYERS, "weights in 4 bits": "compute"}),
        ),
    ),
    Exercise(
        id="15.3",
        task="Ids of the traps in a list of claims, sorted: traps_of(claims), each with changed, "
        "against and counted",
        cases=(
            case([_claim()], gives=[]),
            case([_claim("precision", "batch", "model")],
                 gives=["batch_changed", "precision_dividend"],
                 hint="Other changes are other traps; two are asked for."),
            case([_claim(against="itself"), _claim(against="itself")],
                 gives=["compared_only_with_itself"]),
            case([_claim(against="itself"), _claim()], gives=[],
                 hint="One look at another system lifts the charge."),
            case([_claim(against="itself"), _claim(against=None)],
                 gives=["compared_only_with_itself"], hint="An untold baseline proves nothing."),
            case([_claim(against=None)], gives=[]),
            case([_claim(against="naive", counted="survivors")],
                 gives=["percentile_of_survivors", "weak_baseline"]),
            case([], gives=[]),
        ),
        mistakes=(
            Mistake("Only where all claims stay at home.",
                    lambda claims: _traps(claims, itself="any")),
            Mistake("A claim whose baseline is not told is no comparison at all.",
                    lambda claims: _traps(claims, itself="strict")),
            Mistake("A simple baseline inflates the factor.",
                    lambda claims: _traps(claims, naive=False)),
            Mistake("Look at who was counted.", lambda claims: _traps(claims, lost=False)),
        ),
    ),
    Exercise(
        id="15.4",
        task="The p-th percentile (nearest rank) of all requests, where those beyond the time-out "
        "wait for ever: honest_percentile(latencies_s, timeout_s, p)",
        cases=(
            case([1.0, 2.0, 3.0, 4.0], 10.0, 50, gives=2.0),
            case([4.0, 1.0, 3.0, 2.0], 10.0, 75, gives=3.0, hint="Sort first."),
            case([1.0, 2.0, 3.0, 4.0], 2.5, 50, gives=2.0),
            case([1.0, 2.0, 3.0, 4.0], 2.5, 75, gives=inf, hint="The third request never ended."),
            case([1.0, 2.0, 3.0], 2.0, 60, gives=2.0, hint="Just in time is in time."),
            case([1.0, 2.0, 3.0, 4.0, 5.0], 9.0, 90, gives=5.0, hint="The rank is rounded up."),
            case([3.0], 1.0, 50, gives=inf),
        ),
        properties=(_losing_more_never_helps,),
        mistakes=(
            Mistake("That is the percentile of the survivors.", _of_survivors),
            Mistake("Who was given up did not get an answer at the time-out.", _lost_as_timeout),
            Mistake("Requests beyond the time-out were not answered.", _no_timeout),
            Mistake("Rank p/100 * n is rounded up.", _cut_rank),
            Mistake("A request that ends at the time-out is answered.", _edge_is_lost),
        ),
    ),
    Exercise(
        id="15.5",
        task="By what factor latency changed, by Little's law: latency_factor(throughput_gain, "
        "users_before, users_after)",
        cases=(
            case(5.0, 1, 32, gives=6.4, hint="Five times the rate for 32 times the users."),
            case(2.0, 8, 8, gives=0.5, hint="The same users, twice as fast."),
            case(4.0, 2, 8, gives=1.0, hint="Nobody waits longer."),
            case(1.0, 4, 16, gives=4.0),
        ),
        mistakes=(
            Mistake("Users over rate, not rate over users.", lambda g, a, b: g / (b / a)),
            Mistake("More users in the same system wait longer.", lambda g, a, b: 1 / g),
            Mistake("The gain in rate serves part of the new users.", lambda g, a, b: b / a),
            Mistake("Only the ratio of the users counts.", lambda g, a, b: b / g),
        ),
    ),
    Exercise(
        id="15.6",
        task="The questions of transfer that are answered yes, in their order: transfer(needs, "
        "have, in_engine, runs_small)",
        cases=(
            case([], ["gpu"], True, True, gives=["usable_now", "testable_small"]),
            case(["rdma"], ["gpu"], True, True,
                 gives=["not_now", "testable_small", "needs_purchase"],
                 hint="A small test stands in for the hardware."),
            case(["gpu"], ["gpu", "rdma"], True, False, gives=["usable_now"]),
            case([], [], False, False, gives=["not_now"],
                 hint="Without an engine that has it, it is work first."),
            case(["gpu", "switch"], ["gpu"], False, False, gives=["not_now", "needs_purchase"]),
        ),
        mistakes=(
            Mistake("What is not at hand cannot be used now.", _wrong("ignores hardware")),
            Mistake("Hardware alone runs nothing.", _wrong("hardware is enough")),
            Mistake("A small test needs no special hardware.", _wrong("small needs all")),
            Mistake("What one has need not be bought.", _wrong("buys again")),
            Mistake("A method that no engine offers is not usable now.",
                    _wrong("engine forgotten")),
        ),
    ),
)  # fmt: skip
