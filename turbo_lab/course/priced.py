"""The price of a step on a lesson's server: a few points measured, the model fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.course.lesson import Lesson
from turbo_lab.course.served import Served
from turbo_lab.estimate import fit, grids
from turbo_lab.estimate.points import PromptSource, StepPoint, measure

FAR_TOKENS = 400  # a second context, so that reading the cache has a price of its own
RETRIES = 2  # further passes over points that disagree with themselves


@dataclass(frozen=True)
class Priced:
    """The fitted model, and how far two measurements of one point lay apart (relative, A/A)."""

    model: fit.StepModel
    noise: float


def priced(
    lab: Lesson,
    server: Any,
    facts: Served,
    *,
    users: int,
    context_tokens: int,
    prompts_tokens: Sequence[int],
    passes: int,
) -> Priced:
    """Measure under ``calibration``, or replay it, and fit.

    Decode steps are measured alone, with ``users`` and with all seats; prefills of three lengths at
    least (``prompts_tokens``). The server must serve nothing else meanwhile. Raises UnmeasuredError
    where nothing could be measured: then nothing that follows from it can be predicted.
    """
    decodes = {(1, context_tokens), (facts.seats, context_tokens), (users, FAR_TOKENS)}
    points = [StepPoint("decode", *shape) for shape in sorted(decodes)]
    reads = [StepPoint("prefill", 1, tokens) for tokens in prompts_tokens]

    def rows() -> list[dict[str, Any]]:
        longest = max(FAR_TOKENS + facts.seats, *prompts_tokens)
        how: dict[str, Any] = {
            "prompts": PromptSource(vocab=facts.spec.vocab, longest=longest),
            "model": server.model_name,
            "retries": RETRIES,
            "send": lambda asked, n: run_closed_loop(
                asked, base_url=server.base_url, concurrency=n
            ),
        }
        found = measure(points, passes=passes, **how)
        return grids.to_rows([*found, *measure(reads, passes=2 * passes, **how)])

    seen = grids.from_rows(lab.observe("calibration", rows) or [])
    if not seen:
        raise UnmeasuredError("no step was measured; the reason is printed above")
    roof = fit.loose_roof(seen, **facts.formats)
    model = fit.fit_step_model(seen, roof=roof, **facts.formats)
    return Priced(model, fit.aa_noise(seen) or 0.0)
