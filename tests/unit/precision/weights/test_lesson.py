from __future__ import annotations

import numpy as np
import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.experiment.quality_paired import paired_difference
from turbo_lab.experiment.quality_rows import row_from_dict, row_to_dict
from turbo_lab.experiment.quality_table import QualityRow, TextQuality
from turbo_lab.precision.weights import lesson


def row(name: str, kl: float) -> QualityRow:
    noise = np.linspace(0.9, 1.1, 20)
    found = paired_difference([0.0] * 20, list(kl * noise))
    return QualityRow(name, TextQuality(found, found, found, 640), None, None, 10, 40)


def test_every_effort_has_what_is_served_and_the_rest_of_the_lesson_names() -> None:
    for effort in ("smoke", "quick", "full"):
        found = lesson.lesson_recipes(effort)
        assert {lesson.INT8, lesson.TENSOR, lesson.GROUP} <= set(found)
        assert set(lesson.served_recipes(effort).values()) <= set(found)
        assert all(recipe.name == name for name, recipe in found.items())
    assert set(lesson.lesson_recipes("quick")) < set(lesson.lesson_recipes("full"))
    with pytest.raises(UsageError, match="Did you mean 'quick'"):
        lesson.lesson_recipes("quik")


def test_a_pair_is_broken_when_the_intervals_touch() -> None:
    rows = [row(lesson.INT8, 0.01), row(lesson.GPTQ, 0.5), row(lesson.GROUP, 0.51)]
    assert lesson.broken_pairs(rows) == [f"{lesson.GPTQ} < {lesson.GROUP}"]
    assert lesson.broken_pairs([rows[0], row(lesson.GPTQ, 0.2), rows[2]]) == []
    assert lesson.pairs_of([r.name for r in rows]) == 2
    assert lesson.pairs_of([*lesson.lesson_recipes("quick")]) == len(lesson.ORDER)


def test_rows_come_back_from_plain_data() -> None:
    import json

    before = row("x", 0.3)
    assert row_from_dict(json.loads(json.dumps(row_to_dict(before)))) == before
    assert row_from_dict(row_to_dict(QualityRow("bare"))) == QualityRow("bare")
