"""The live parts of the study: calibrate an arm, play its classes beside the off-control, crowds.

All results are plain data, as a lesson's record keeps them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.metrics.definitions import outcome, output_tokens
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.speculative import cost
from turbo_lab.speculative.arms import Arm
from turbo_lab.speculative.prompts import ClassPrompt
from turbo_lab.speculative.runs import ClassRun, play, requests_for, warm
from turbo_lab.workload.request import Request

REST_S = 1.5  # A vLLM worker polls for a second after its last step, and takes a core for it.
Asked = Mapping[str, Sequence[Request]]


def by_class(server: Any, prompts: Sequence[ClassPrompt], *, max_tokens: int) -> dict[str, list]:
    """Greedy requests for these prompts, class by class in the order of the prompts."""
    kinds = dict.fromkeys(p.kind for p in prompts)
    return {
        kind: requests_for(server, [p for p in prompts if p.kind == kind], max_tokens=max_tokens)
        for kind in kinds
    }


def rest(asked: Asked, *servers: Any) -> None:
    """Use each server once, then wait until none of them polls any more."""
    for server in servers:
        warm(server, next(iter(asked.values())))
    time.sleep(REST_S)


def beside(off: Any, server: Any, asked: Asked) -> dict[str, dict[str, Any]]:
    """Every class on the off-control and right after it on the arm, one request at a time.

    Neighbours in time share the machine's mood. Returns class to ``off`` and ``on``, each a
    ``ClassRun``.
    """
    found = {}
    rest(asked, off, server)
    for kind, requests in asked.items():
        runs = {}
        for side, one in (("off", off), ("on", server)):
            runs[side] = play(one, kind, requests).to_dict()
            time.sleep(REST_S)
        found[kind] = runs
    return found


def runs_of(found: Mapping[str, Any] | None, side: str) -> dict[str, ClassRun]:
    """One side of ``beside`` (``off`` or ``on``) as class runs; empty where it is unmeasured."""
    return {kind: ClassRun.from_dict(pair[side]) for kind, pair in (found or {}).items()}


def calibrate(
    server: Any, arm: Arm, *, vocab: int, passes: int, others: Asked | None = None
) -> dict[str, Any]:
    """What is measured on an arm before anything is forecast for it.

    ``forced`` and ``fresh`` steps (see ``cost``); with ``others``, prompts that are not timed
    later, also the engine's counts on each class of them.
    """
    time.sleep(REST_S)
    kind = {"vocab": vocab, "passes": passes}
    found = {
        "forced": cost.forced_steps(server, draft_tokens=arm.draft_tokens, **kind).to_dict(),
        "fresh": cost.fresh_steps(server, **kind).to_dict(),
    }
    if others is not None:
        found["classes"] = {
            name: play(server, name, requests, concurrency=len(requests)).counts.to_dict()
            for name, requests in others.items()
        }
    return found


def crowd(server: Any, asked: Asked, *, users: int) -> dict[str, Any]:
    """All classes mixed, ``users`` at a time: tokens per second of all, and the timelines.

    Raises UnmeasuredError when a request failed.
    """
    mixed = [r for group in zip(*asked.values(), strict=True) for r in group]
    time.sleep(REST_S)
    runs = run_closed_loop(mixed, base_url=server.base_url, concurrency=users)
    bad = [outcome(t).reason for t in runs if not outcome(t).ok]
    if bad:
        raise UnmeasuredError(f"{len(bad)} of {len(runs)} requests failed: {bad[0]}")
    return {"users": users, "tok_s": rate_tok_s(runs), "timelines": [t.to_dict() for t in runs]}


def rate_tok_s(runs: Sequence[Timeline]) -> float:
    """Output tokens over the time from the first sending to the last end, in tokens per second."""
    tokens = sum(output_tokens(t) or 0 for t in runs)
    begin = min(t.sent_s or 0.0 for t in runs)
    return tokens / (max(t.closed_s or 0.0 for t in runs) - begin)
