"""Replies of a served model to the prompts with checkable answers: text is all that is needed."""

from __future__ import annotations

from collections.abc import Sequence

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.experiment.quality_prompts import QualityPrompt
from turbo_lab.experiment.quality_subject import Reply
from turbo_lab.metrics.definitions import outcome
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.workload.request import Request


def served_replies(
    base_url: str,
    prompts: Sequence[QualityPrompt],
    *,
    model: str,
    concurrency: int = 1,
    timeout_s: float = 120.0,
) -> tuple[tuple[Reply, ...], list[Timeline]]:
    """Greedy replies in chat format, and the timelines they came with (for speed).

    One request at a time by default: in a batch the sums of a reply may be formed in another order.

    Raises:
        UnmeasuredError: a request failed; quality over the others would be another question.
    """
    requests = [
        Request(p.text, model=model, max_tokens=p.max_tokens, request_id=p.id) for p in prompts
    ]
    runs = run_closed_loop(
        requests, base_url=base_url, concurrency=concurrency, timeout_s=timeout_s
    )
    failed = [p.id for p, t in zip(prompts, runs, strict=True) if not outcome(t).ok]
    if failed:
        raise UnmeasuredError(f"{len(failed)} of {len(prompts)} requests failed, first {failed[0]}")
    replies = (Reply(p.id, None, t.text) for p, t in zip(prompts, runs, strict=True))
    return tuple(replies), runs
