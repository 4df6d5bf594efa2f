"""The live parts of the study: calibrate an arm, play its classes beside the off-control, crowds.

All results are plain data, as a lesson's record keeps them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.estimate.verification import CostOfCheck
from turbo_lab.speculative import cost
from turbo_lab.speculative.arms import Arm
from turbo_lab.speculative.prompts import ClassPrompt
from turbo_lab.speculative.runs import REST_S, ClassRun, play, warm
from turbo_lab.speculative.tokens import chat_tokens, read_replies
from turbo_lab.workload.request import Request

SETTLED = 0.10  # two runs of the off-control that agree
Asked = Mapping[str, Sequence[Request]]
Ids = Mapping[str, Sequence[Sequence[int]]]


def prompt_ids(server: Any, prompts: Sequence[ClassPrompt]) -> dict[str, list[list[int]]]:
    """Prompts as the server's token ids in chat format, class by class."""
    found: dict[str, list[list[int]]] = {}
    for prompt in prompts:
        found.setdefault(prompt.kind, []).append(chat_tokens(server, prompt.text))
    return found


def as_requests(ids: Ids, *, model: str, max_tokens: int) -> dict[str, list[Request]]:
    """Greedy requests for these prompts; the reply may end by itself."""
    return {
        kind: [
            Request(prompt, model=model, endpoint="completions", max_tokens=max_tokens,
                    request_id=f"{kind}-{i}", labels={"class": kind})
            for i, prompt in enumerate(prompts, 1)
        ]
        for kind, prompts in ids.items()
    }  # fmt: skip


def control(off: Any, asked: Asked) -> dict[str, dict[str, Any]]:
    """Every class on the off-control alone, with the token ids of its replies."""
    rest(asked, off)
    found = {}
    for kind, requests in asked.items():
        run = play(off, kind, requests)
        found[kind] = {"run": run.to_dict(), "replies": read_replies(off, run.timelines)}
    return found


def rest(asked: Asked, *servers: Any) -> None:
    """Use each server once, then wait until none of them polls any more."""
    for server in servers:
        warm(server, next(iter(asked.values())))
    time.sleep(REST_S)


def beside(
    off: Any, server: Any, asked: Asked, *, expected_s: Mapping[str, float] | None = None
) -> dict[str, dict[str, Any]]:
    """Every class on the off-control and right after it on the arm, one request at a time.

    Neighbours in time share the machine's mood. Where the off-control's seconds per token differ
    by more than ``SETTLED`` from ``expected_s``, something else used the machine, and the pair is
    played once more. Returns class to ``off`` and ``on``, each a ``ClassRun``.
    """
    found = {}
    rest(asked, off, server)
    for kind, requests in asked.items():
        found[kind] = _pair(off, server, kind, requests)
        usual = (expected_s or {}).get(kind)
        if usual and abs(run_of(found, kind, "off").token_s() / usual - 1) > SETTLED:
            found[kind] = _pair(off, server, kind, requests)
    return found


def _pair(off: Any, server: Any, kind: str, requests: Sequence[Request]) -> dict[str, Any]:
    runs = {}
    for side, one in (("off", off), ("on", server)):
        runs[side] = play(one, kind, requests).to_dict()
        time.sleep(REST_S)
    return runs


def run_of(found: Mapping[str, Any] | None, kind: str, side: str) -> ClassRun:
    """One class of ``beside`` on one side, ``off`` or ``on``. Raises UnmeasuredError without it."""
    if not found or kind not in found:
        raise UnmeasuredError(f"class {kind} was not played")
    return ClassRun.from_dict(found[kind][side])


def gain(found: Mapping[str, Any] | None, kind: str) -> float:
    """How many times as fast the arm wrote this class. Raises UnmeasuredError without runs."""
    return run_of(found, kind, "off").token_s() / run_of(found, kind, "on").token_s()


def costs(found: Mapping[str, Any] | None, *, arm: Arm, shape: CostOfCheck) -> cost.ArmCost:
    """The cost of an arm's steps from its calibration. Raises UnmeasuredError without one."""
    if not found:
        raise UnmeasuredError(f"the steps of {arm} have no time")
    fresh = cost.StepPair.from_dict(found["fresh"]) if "fresh" in found else None
    return cost.arm_cost(
        forced_of(found), draft_tokens=arm.draft_tokens, shape=shape, fresh=fresh
    )  # fmt: skip


def forced_of(found: Mapping[str, Any] | None) -> cost.StepPair:
    """The forced steps of a calibration. Raises UnmeasuredError without one."""
    if not found:
        raise UnmeasuredError("no forced reply was timed")
    return cost.StepPair.from_dict(found["forced"])


def calibrate(
    off: Any, server: Any, arm: Arm, *, vocab: int, passes: int, others: Asked | None = None
) -> dict[str, Any]:
    """What is measured on an arm, beside the off-control, before anything is forecast for it.

    ``forced`` steps and, but for a draft, which guesses always, ``fresh`` ones (see ``cost``); with
    ``others``, prompts that are not timed later, also the engine's counts on each class of them.
    """
    time.sleep(REST_S)
    kind = {"vocab": vocab, "passes": passes}
    forced = _possible(lambda: cost.forced_pair(off, server, draft_tokens=arm.draft_tokens, **kind))
    found: dict[str, Any] = {"forced": forced.to_dict()}
    if arm.method != "draft":
        found["fresh"] = _possible(lambda: cost.fresh_pair(off, server, **kind)).to_dict()
    if others is not None:
        found["classes"] = {
            name: play(server, name, requests, concurrency=len(requests)).counts.to_dict()
            for name, requests in others.items()
        }
    return found


def _possible(take: Callable[[], cost.StepPair]) -> cost.StepPair:
    """The pair, taken once more where a step that does more work seems to cost less.

    That cannot be: something else used the machine on one side. A second such pair is kept as it
    is, for its passes show it.
    """
    pair = take()
    return pair if pair.ratio >= 1 else take()


def crowd(server: Any, kind: str, requests: Sequence[Request], *, users: int) -> dict[str, Any]:
    """One class, ``users`` of it at once, its prompts in turn: a ``ClassRun``."""
    asked = [
        replace(requests[i % len(requests)], request_id=f"{kind}-{users}-{i}")
        for i in range(users)
    ]  # fmt: skip
    time.sleep(REST_S)
    return play(server, kind, asked, concurrency=users).to_dict()


def crowd_tok_s(found: Mapping[str, Any] | None) -> float:
    """Tokens per second of all users of a crowd while they write. Raises UnmeasuredError."""
    if not found:
        raise UnmeasuredError("the crowd was not played")
    run = ClassRun.from_dict(found)
    return len(run.timelines) / run.token_s()
