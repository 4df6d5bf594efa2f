"""Which points to measure: a few to fit the step-time model, and others to judge it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.estimate.points import MeasuredStep, StepPoint, decode_grid, prefill_points

Points = tuple[StepPoint, ...]

BATCHES, CONTEXTS = (1, 2, 4, 8, 16), (128, 256, 512, 768, 1024)
# Spread over batches and contexts so that each of both appears, without the whole grid.
SOME = ((1, 512), (1, 1024), (2, 256), (2, 768), (4, 128), (4, 768), (8, 256), (8, 512), (16, 256),
        (16, 512))  # fmt: skip


def step_grid(effort: str) -> tuple[Points, Points]:
    """(points to fit, points to judge), none in both, for ``smoke``, ``quick`` or ``full``.

    The judging points lie between and around the fitted ones: batches 1 to 16, contexts 128 to
    1,024, prompts of 64 to 1,024 tokens.
    """
    if effort == "smoke":
        fit = (*decode_grid(batches=(1, 4), contexts=(64, 192)), *prefill_points((64, 128, 256)))
        return fit, (StepPoint("decode", 2, 128), *prefill_points((192,)))
    fit = (
        *decode_grid(
            batches=(1, 6, 16), contexts=(144, 640, 1008) if effort == "full" else (144, 752)
        ),
        *prefill_points((80, 320, 640, 960)),
    )
    if effort == "quick":
        return fit, (
            *(StepPoint("decode", b, s) for b, s in SOME),
            *prefill_points((64, 128, 256, 512, 768, 1024)),
        )
    if effort == "full":
        return fit, (
            *decode_grid(batches=BATCHES, contexts=CONTEXTS),
            *prefill_points((64, 128, 192, 256, 384, 512, 768, 896, 1024)),
        )
    raise UsageError(f"effort is {effort!r}.{did_you_mean(effort, ['smoke', 'quick', 'full'])}")


def split(
    measured: Iterable[MeasuredStep], *, fit: Iterable[StepPoint]
) -> tuple[list[MeasuredStep], list[MeasuredStep]]:
    """(those to fit on, those to judge by). No point is ever in both."""
    used, rows = set(fit), list(measured)
    return [m for m in rows if m.point in used], [m for m in rows if m.point not in used]


def to_rows(measured: Sequence[MeasuredStep]) -> list[dict[str, Any]]:
    """JSON-ready form, as records keep it."""
    return [
        {"phase": m.point.phase, "batch": m.point.batch, "tokens": m.point.tokens,
         "passes_s": list(m.passes)}
        for m in measured
    ]  # fmt: skip


def from_rows(rows: Iterable[Mapping[str, Any]]) -> tuple[MeasuredStep, ...]:
    """Inverse of ``to_rows``."""
    return tuple(
        MeasuredStep(StepPoint(r["phase"], r["batch"], r["tokens"]), tuple(r["passes_s"]))
        for r in rows
    )
