"""The grids: what is judged is never fitted, and covers what the course promises."""

from __future__ import annotations

import json

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.grids import from_rows, split, step_grid, to_rows
from turbo_lab.estimate.points import MeasuredStep


@pytest.mark.parametrize("effort", ["smoke", "quick", "full"])
def test_no_point_is_fitted_and_judged(effort: str) -> None:
    fit, judge = step_grid(effort)
    assert not set(fit) & set(judge)
    for phase in ("decode", "prefill"):
        assert len([p for p in fit if p.phase == phase]) >= 3
        assert any(p.phase == phase for p in judge)


@pytest.mark.parametrize("effort", ["quick", "full"])
def test_the_judging_points_cover_batches_and_lengths(effort: str) -> None:
    _, judge = step_grid(effort)
    decode = [p for p in judge if p.phase == "decode"]
    prompts = {p.tokens for p in judge if p.phase == "prefill"}
    assert {p.batch for p in decode} == {1, 2, 4, 8, 16}
    assert {128, 1024} <= {p.tokens for p in decode}
    assert (min(prompts), max(prompts)) == (64, 1024)


def test_rows_round_trip_and_split() -> None:
    fit, judge = step_grid("quick")
    measured = tuple(MeasuredStep(p, (0.1, 0.2)) for p in (*judge, *fit))
    back = from_rows(json.loads(json.dumps(to_rows(measured))))
    assert back == measured
    used, unseen = split(back, fit=fit)
    assert {m.point for m in used} == set(fit) and {m.point for m in unseen} == set(judge)


def test_an_unknown_effort_is_refused() -> None:
    with pytest.raises(UsageError, match="quick"):
        step_grid("quik")
