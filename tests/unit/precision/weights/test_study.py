"""The table of the weight recipes, on a small model over our real texts."""

from __future__ import annotations

from typing import Any

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.experiment.quality_subject import Subject
from turbo_lab.numerics.schemes import Scheme
from turbo_lab.precision.weights.recipe import Recipe
from turbo_lab.precision.weights.sensitivity import parts_by_kind, sensitivity
from turbo_lab.precision.weights.study import (
    calibrate,
    measure_dtype,
    measure_recipes,
    prepare_weights,
    standard_recipes,
)


class Characters:
    """A tokenizer: one token per character."""

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        import torch

        return {"input_ids": torch.tensor([[ord(c) % 128 for c in text]])}


@pytest.fixture
def subject(tiny: Any) -> Subject:
    return Subject("tiny", tiny, Characters())


def test_fewer_bits_cost_more_and_calibration_helps(subject: Subject) -> None:
    work, inputs = prepare_weights(subject, effort="smoke"), calibrate(subject, effort="smoke")
    coarse = Scheme("int4", "group", group_size=32, scale_dtype="bf16")
    recipes = {r.name: r for r in (Recipe("int8", Scheme("int8", "channel")),
                                   Recipe("gptq", coarse, method="gptq"),
                                   Recipe("int4", coarse))}  # fmt: skip
    rows = {row.name: row for row in measure_recipes(work, recipes, inputs=inputs)}
    kl = {name: row.text.kl.candidate for name, row in rows.items() if row.text}
    assert kl["int8"] < kl["gptq"] < kl["int4"]
    assert rows["int4"].stored_bytes < rows["int8"].stored_bytes < work.reference_bytes
    narrow = measure_dtype(work, "bfloat16")
    assert narrow.smaller == 2 and narrow.text and 0 < narrow.text.kl.candidate < kl["int4"]
    down = {"down_proj": parts_by_kind(subject.model)["down_proj"]}
    rows_of_parts = sensitivity(subject.model, recipes["int4"], score=work.score, parts=down)
    assert next(rows_of_parts).damage > 0


def test_standard_recipes_are_named_and_calibrated_ones_marked() -> None:
    recipes = standard_recipes()
    assert all(name == recipe.name for name, recipe in recipes.items())
    marked = {name for name, recipe in recipes.items() if recipe.needs_calibration}
    assert marked == {name for name in recipes if "GPTQ" in name or "AWQ" in name}


def test_unknown_names_are_refused(subject: Subject) -> None:
    with pytest.raises(UsageError, match=r"effort is 'quik'.*Did you mean 'quick'"):
        prepare_weights(subject, effort="quik")
    with pytest.raises(UsageError, match=r"dtype is 'bfloat8'.*Did you mean 'bfloat16'"):
        measure_dtype(prepare_weights(subject, effort="smoke"), "bfloat8")
