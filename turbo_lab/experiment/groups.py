"""A run by tenant, by turn, or by first and later use of a prefix: who waited how long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from turbo_lab.metrics import definitions
from turbo_lab.metrics.fairness import jain_index
from turbo_lab.metrics.summary import summarize
from turbo_lab.metrics.timeline import Timeline

POINTS = (50, 95)


def group_tables(timelines: Sequence[Timeline]) -> dict[str, Any]:
    """Tables by what the workload's labels tell apart; empty for a plain workload.

    ``tenant``, ``turn``, ``prefix use``: rows of ``group_row``, in the order of the groups' names.
    ``fairness`` for two tenants or more: ``jain_ttft`` over their median TTFTs and
    ``jain_served`` over their delivered / asked output tokens; 1 is equal treatment, 1/n is one
    tenant alone. TTFT grows with the prompt, so unequal lengths alone lower the first.
    """
    kinds: dict[str, Callable[[Timeline], Any]] = {
        "tenant": lambda t: t.labels.get("tenant"),
        "turn": lambda t: t.labels.get("turn"),
        "prefix use": _prefix_use,
    }
    out: dict[str, Any] = {}
    for name, key in kinds.items():
        groups: dict[Any, list[Timeline]] = {}
        for timeline in timelines:
            if (value := key(timeline)) is not None:
                groups.setdefault(value, []).append(timeline)
        if groups:
            out[name] = [group_row(str(value), groups[value]) for value in sorted(groups)]
    if len(out.get("tenant", ())) > 1:
        out["fairness"] = fairness(out["tenant"])
    return out


def _prefix_use(timeline: Timeline) -> str | None:
    if "prefix" not in timeline.labels:
        return None
    return "later" if timeline.labels["shared_tokens"] else "first"


def group_row(name: str, timelines: Sequence[Timeline]) -> dict[str, Any]:
    """One group under this project's contract. Seconds and tokens; None where undefined."""
    found = summarize(timelines)
    good = [t for t in timelines if definitions.outcome(t).ok]
    row: dict[str, Any] = {"group": name, "attempted": found.attempted,
                           "succeeded": found.succeeded}  # fmt: skip
    for metric in ("ttft_s", "tpot_s", "e2e_s"):
        values = found.metrics[metric]
        row |= {f"{metric.removesuffix('_s')}_p{p}_s": values.percentile(p) for p in POINTS}
    row["input_tokens"] = _total([definitions.input_tokens(t) for t in good])
    row["output_tokens"] = _total([definitions.output_tokens(t) for t in good])
    asked = [t.labels.get("output_tokens") for t in timelines]
    row["asked_output_tokens"] = _total([None if n is None else int(n) for n in asked])
    return row


def _total(counts: Sequence[int | None]) -> int | None:
    if not counts or any(n is None for n in counts):
        return None
    return sum(n for n in counts if n is not None)


def fairness(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Jain's index over the tenants' median TTFTs, and over what they got of what they asked."""
    waits = [row["ttft_p50_s"] for row in rows]
    served = [
        row["output_tokens"] / row["asked_output_tokens"]
        if row["output_tokens"] is not None and row["asked_output_tokens"]
        else (0.0 if not row["succeeded"] else None)
        for row in rows
    ]
    return {"jain_ttft": _jain(waits), "jain_served": _jain(served)}


def _jain(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return jain_index(known) if len(known) == len(values) and any(known) else None
