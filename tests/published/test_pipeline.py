"""Published figures of pipeline parallelism, and the closed forms of tensor and expert parallel."""

from __future__ import annotations

import json

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.estimate.pipeline import (
    ChunkTimes,
    bubble_fraction,
    bubble_over_ideal,
    training_bubble_s,
)

FACTS = json.loads((repository_root() / "data" / "reference" / "pipeline.json").read_text())
SHARED = repository_root().parent / "shared" / "reference" / "pipeline.json"


@pytest.mark.parametrize(
    "row", FACTS["rows"], ids=lambda r: f"p{r['stages']}-m{r['micro_batches']}"
)
def test_bubble(row: dict) -> None:
    total = bubble_fraction(row["stages"], micro_batches=row["micro_batches"])
    assert round(total, 4) == row["of_total"]
    if row["over_ideal"] is not None:
        ideal = bubble_over_ideal(row["stages"], micro_batches=row["micro_batches"])
        assert ideal == row["over_ideal"]


def test_interleaving_divides_the_bubble() -> None:
    assert FACTS["formulas"]["interleaved"] == "(p-1)/(v*m)"
    plain = bubble_over_ideal(8, micro_batches=24)
    assert bubble_over_ideal(8, micro_batches=24, chunks_per_stage=4) == plain / 4


@pytest.mark.parametrize("schedule", ["1F1B", "ZB1P", "DualPipe"])
def test_training_bubbles_are_the_printed_formulas(schedule: str) -> None:
    stages, forward, backward, weights, together = 8, 1.0, 2.0, 0.75, 2.5
    printed = FACTS["training_bubbles"][schedule]
    terms = printed.replace("F&B", "FB").replace("(FB", "*(FB").replace(")(", ")*(")
    terms = terms.replace("2W", "2*W").replace("3W", "3*W").replace("**", "*")
    names = {"PP": stages, "F": forward, "B": backward, "W": weights, "FB": together}
    expected = eval(terms, {"__builtins__": {}}, names)
    times = ChunkTimes(forward, backward, weights, together)
    assert training_bubble_s(schedule, stages, times) == pytest.approx(expected)


def test_unknown_schedules_and_odd_stages_are_refused() -> None:
    times = ChunkTimes(1.0, 2.0)
    with pytest.raises(UsageError, match=r"no schedule '1f1b'.*Allowed: 1F1B"):
        training_bubble_s("1f1b", 4, times)
    with pytest.raises(UsageError, match="no even number"):
        training_bubble_s("DualPipe", 5, times)


def test_the_facts_are_those_of_the_reference() -> None:
    if not SHARED.exists():
        pytest.skip("the reference folder is not beside this checkout")
    given = json.loads(SHARED.read_text())
    ours = [(r["stages"], r["micro_batches"], r["of_total"]) for r in FACTS["rows"]]
    assert ours == [(r["p"], r["m"], r["total"]) for r in given["rows"]]
    assert FACTS["training_bubbles"] == given["dualpipe"]
