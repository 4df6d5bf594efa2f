"""The parts of the chain timed one by one, and what they promise for questions not yet asked."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.experiment.chain import (
    ChainQuestion,
    Link,
    chain_corpus,
    chain_questions,
    run_chain,
    token_s,
)
from turbo_lab.experiment.chain_tools import run_tool

TOOL_REPEATS = 3
Parts = Mapping[str, Any]


def measure_parts(
    questions: Sequence[ChainQuestion], *, base_url: str, model: str, reply_tokens: int
) -> dict[str, Any]:
    """Seconds of each part alone, medians: ``retrieval``, ``tools`` by name, ``first_token``,
    ``token``; and ``prompt_token``, what a further token of a prompt costs.

    ``questions`` are asked without their tools, and should not be those that are forecast.
    """
    plain = [ChainQuestion(q.id, q.question, (), q.answers) for q in questions]
    where = {"base_url": base_url, "model": model, "reply_tokens": reply_tokens}
    run_chain(plain[:1], **where)  # The first request meets cold memory; it is not counted.
    rows = run_chain(plain, **where)
    links = [Link.from_dict(row) for row in rows]
    step_s = token_s(links)
    prompt_tokens = sum(x.prompt_tokens - 1 for x in links)
    if prompt_tokens < 1:
        raise UnmeasuredError("the server does not count prompt tokens")
    return {
        "retrieval": statistics.median(x.retrieve_s for x in links),
        "tools": {name: _tool_s(name) for name in ("calculate", "estimate")},
        "first_token": statistics.median(x.ttft_s for x in links),
        "token": step_s,
        "prompt_token": sum(x.ttft_s - step_s for x in links) / prompt_tokens,
        "corpus": len(chain_corpus().texts),
    }


def _tool_s(name: str) -> float:
    tool = next(q.tool for q in chain_questions() if q.tool[:1] == (name,))
    times = []
    for _ in range(TOOL_REPEATS):
        begin_s = time.perf_counter()
        run_tool(tool)
        times.append(time.perf_counter() - begin_s)
    return statistics.median(times)


def foretold_stages(
    parts: Parts | None, questions: Sequence[ChainQuestion], *, reply_tokens: int
) -> dict[str, float]:
    """Seconds of each stage over these questions, summed from the parts. Sends nothing.

    Raises UnmeasuredError without parts.
    """
    parts, count = known(parts), len(questions)
    return {
        "retrieval": parts["retrieval"] * count,
        "tool": sum(parts["tools"][q.tool[0]] for q in questions if q.tool),
        "first token": parts["first_token"] * count,
        "further tokens": parts["token"] * (reply_tokens - 1) * count,
    }


def foretold_share(stages: Mapping[str, float]) -> float:
    """Share of inference in the stages."""
    return (stages["first token"] + stages["further tokens"]) / sum(stages.values())


def known(parts: Parts | None) -> Parts:
    """The parts. Raises UnmeasuredError where they were not measured."""
    if not parts:
        raise UnmeasuredError("the parts of the chain were not measured")
    return parts


def inference_gain(parts: Parts | None, *, reply_tokens: int, shorter: int) -> float:
    """How many times as fast inference gets when replies have ``shorter`` tokens."""
    parts = known(parts)
    before, after = (parts["first_token"] + parts["token"] * (n - 1)
                     for n in (reply_tokens, shorter))  # fmt: skip
    return before / after
