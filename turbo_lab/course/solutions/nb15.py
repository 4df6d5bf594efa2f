"""Solutions of notebook 15."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, inf
from types import MappingProxyType
from typing import Any


def flash_attention_3() -> dict[str, str]:
    """A kernel for one generation of cards.

    It keeps the arithmetic units busy where many queries are processed at once, on any number of
    cards: no machine has to talk to another one.
    """
    return {
        "resource": "compute",
        "stage": "prefill",
        "deployment": "single_node",
        "hardware_coupling": "high",
        "layer": "compute",
    }


def layers() -> dict[str, str]:
    """What is changed decides: an operator, a weight, the schedule, or what lies between hosts."""
    return {
        "online softmax in one kernel": "compute",
        "weights in 4 bits": "model_parameter",
        "reuse of common prefixes": "runtime",
        "a freed seat is filled at the next step": "runtime",
        "pools for prefill and decode": "system_and_network",
        "pruning of weights": "model_parameter",
    }


def traps_of(claims: Sequence[Mapping[str, Any]]) -> list[str]:
    """Ids of the traps, sorted. Each claim has ``changed``, ``against`` and ``counted``.

    Only where no claim looks beyond the paper's own system is it compared with itself alone; a
    claim whose baseline is not told proves neither.
    """
    ids = {"precision": "precision_dividend", "batch": "batch_changed"}
    found = {ids[name] for claim in claims for name in claim["changed"] if name in ids}
    if any(claim["counted"] == "survivors" for claim in claims):
        found.add("percentile_of_survivors")
    if any(claim["against"] == "naive" for claim in claims):
        found.add("weak_baseline")
    if {claim["against"] for claim in claims} - {None} == {"itself"}:
        found.add("compared_only_with_itself")
    return sorted(found)


def honest_percentile(latencies_s: Sequence[float], timeout_s: float, p: float) -> float:
    """Nearest rank over all that were sent; who was given up is still waiting, so infinite.

    The value at rank ``ceil(p / 100 * n)`` of the sorted list, counted from 1.
    """
    waited = sorted(value if value <= timeout_s else inf for value in latencies_s)
    return waited[max(1, ceil(p / 100 * len(waited))) - 1]


def latency_factor(throughput_gain: float, users_before: int, users_after: int) -> float:
    """Little's law: users = rate x latency, so latency grows by users over rate."""
    return users_after / users_before / throughput_gain


def transfer(
    needs: Sequence[str], have: Sequence[str], in_engine: bool, runs_small: bool
) -> list[str]:
    """Answers to the four questions that are yes, in their order.

    Usable now is what an engine offers and one's hardware can run; all else is not usable now. A
    small test needs no purchase, because it stands in for the large one.
    """
    missing = set(needs) - set(have)
    now = in_engine and not missing
    answers = {
        "usable_now": now,
        "not_now": not now,
        "testable_small": runs_small,
        "needs_purchase": bool(missing),
    }
    return [question for question, yes in answers.items() if yes]


SOLUTIONS = MappingProxyType({
    "15.1": flash_attention_3,
    "15.2": layers,
    "15.3": traps_of,
    "15.4": honest_percentile,
    "15.5": latency_factor,
    "15.6": transfer,
})  # fmt: skip
