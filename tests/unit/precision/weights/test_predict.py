"""Bytes from config.json are the bytes that quantising really gives, and those of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turbo_lab.engines.local_model import tensor_bytes
from turbo_lab.models.catalog import load_model
from turbo_lab.models.spec import from_hf_config
from turbo_lab.numerics.schemes import Scheme
from turbo_lab.precision.weights.export import export_checkpoint
from turbo_lab.precision.weights.predict import checkpoint_bytes, plain_bytes, recipe_bytes
from turbo_lab.precision.weights.recipe import Recipe, quantized_copy

GROUP = Scheme("int4", "group", group_size=64, scale_dtype="bf16")
RECIPES = [
    Recipe("int8", Scheme("int8", "channel")),
    Recipe("tensor", Scheme("int4", "tensor")),
    Recipe("group", GROUP),
    Recipe("uneven", Scheme("int4", "group", group_size=32, zero="code", scale_dtype="bf16")),
    Recipe("stored minimum", Scheme("int4", "group", group_size=32, zero="value")),
    Recipe("skipping", GROUP, skip=("*.down_proj", "model.layers.0.*")),
    Recipe("fp32 rest", GROUP, plain_dtype="fp32"),
]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: r.name)
def test_prediction_equals_what_is_counted(tiny: Any, recipe: Recipe) -> None:
    made = quantized_copy(tiny, recipe)
    found = recipe_bytes(from_hf_config(tiny.config.to_dict()), recipe)
    assert (found.plain, found.packed) == (made.plain_bytes, made.packed_bytes)
    assert found.total == made.bytes
    assert found.bits_per_weight == pytest.approx(made.bits_per_weight)


@pytest.mark.parametrize("recipe", RECIPES[:1] + RECIPES[2:3], ids=lambda r: r.name)
def test_the_file_holds_as_many_bytes(tiny: Any, tmp_path: Path, recipe: Recipe) -> None:
    tiny.save_pretrained(tmp_path / "source")
    made = quantized_copy(tiny, recipe)
    target = export_checkpoint(made, tmp_path / "made", source=tmp_path / "source")
    spec = from_hf_config(tiny.config.to_dict())
    assert tensor_bytes(str(target)) == checkpoint_bytes(spec, recipe)


def test_bundled_model_by_hand() -> None:
    spec = load_model("smollm2-135m").spec()
    assert plain_bytes(spec, dtype="fp32") == 4 * 134_515_008
    found = recipe_bytes(spec, Recipe("group", GROUP))
    assert found.packed_values == 30 * (2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536)
    assert found.bits_per_weight == 4 + 16 / 64
    assert found.total == found.packed_values * 17 // 32 + 2 * (134_515_008 - found.packed_values)


def test_four_bits_are_not_a_quarter() -> None:
    spec = load_model("smollm2-135m").spec()
    small = recipe_bytes(spec, Recipe("group", GROUP)).total
    assert 2 < plain_bytes(spec, dtype="bf16") / small < 2.5
