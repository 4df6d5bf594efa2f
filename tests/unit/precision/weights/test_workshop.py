"""The workshop of notebook 06 on a small model: rows as plain data, checkpoints, letting go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.engines import tuning
from turbo_lab.experiment.quality_rows import row_from_dict
from turbo_lab.experiment.quality_subject import Subject
from turbo_lab.numerics.schemes import Scheme
from turbo_lab.precision.weights import lesson, workshop
from turbo_lab.precision.weights.layers import linear_names
from turbo_lab.precision.weights.recipe import Recipe

COARSE = Recipe("coarse", Scheme("int4", "channel", scale_dtype="bf16"))


class Characters:
    """A tokenizer: one token per character."""

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        import torch

        return {"input_ids": torch.tensor([[ord(c) % 128 for c in text[:600]]])}


@pytest.fixture
def shop(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> workshop.Workshop:
    tiny.save_pretrained(tmp_path / "source")
    monkeypatch.setenv("TURBO_LAB_CACHE", str(tmp_path / "cache"))
    made = workshop.Workshop("smoke", report=lambda line: None)
    made.source, made.subject = str(tmp_path / "source"), Subject("tiny", tiny, Characters())
    return made


def test_rows_are_plain_data_and_served_recipes_leave_a_checkpoint(shop: Any) -> None:
    raw = json.loads(json.dumps(shop.recipe_rows([lesson.INT8, lesson.TENSOR])))
    fine, rough = (row_from_dict(r) for r in raw)
    assert fine.text.kl.mean < rough.text.kl.mean
    assert fine.stored_bytes > rough.stored_bytes
    assert set(shop.checkpoints) == {lesson.INT8}
    folder = shop.checkpoint(lesson.INT8)
    assert (folder / "model.safetensors").is_file() and folder == shop.checkpoint(lesson.INT8)
    with pytest.raises(UsageError, match="recipe is 'int3'"):
        shop.checkpoint("int3")


def test_pruned_rows_store_less_the_more_is_cut(shop: Any) -> None:
    little, much, pattern = (row_from_dict(r) for r in shop.pruned_rows([0.1, 0.9]))
    assert little.stored_bytes > pattern.stored_bytes > much.stored_bytes
    assert little.text.kl.mean < much.text.kl.mean


def test_damage_and_skip_list_leave_the_model_as_it_was(shop: Any) -> None:
    before = {n: p.clone() for n, p in shop.subject.model.named_parameters()}
    found = shop.sensitivities(COARSE)
    assert [row["part"] for row in found["block"]] == ["block 0", "block 1"]
    assert len(found["kind"]) == 7
    names = linear_names(shop.subject.model)
    rows = [
        row_from_dict(r) for r in shop.skip_rows(COARSE, {"none": (), "all but one": names[1:]})
    ]
    assert rows[1].text.kl.mean < rows[0].text.kl.mean
    assert rows[1].stored_bytes > rows[0].stored_bytes
    for name, parameter in shop.subject.model.named_parameters():
        assert parameter.equal(before[name])


def test_spreads_name_the_matrix_with_the_largest_outlier(shop: Any) -> None:
    import torch

    name = "model.layers.1.mlp.up_proj"
    with torch.no_grad():
        shop.subject.model.get_submodule(name).weight[0, 0] = 100.0
    schemes = {"t": Scheme("int4", "tensor"), "f": Scheme("fp8_e4m3", "channel")}
    found = json.loads(json.dumps(shop.spreads(schemes)))
    assert found["worst"] == name and list(found["grids"]) == ["t"]
    assert len(found["rows"]) == 2 * len(found["outliers"])


def test_emulated_arithmetic_is_unmeasured_and_not_waited_for(shop: Any, monkeypatch: Any) -> None:
    slow = tuning.CpuSettings("float32", 1, {}, "old")
    monkeypatch.setattr(workshop, "cpu_settings", lambda **_: slow)
    with pytest.raises(UnmeasuredError, match="no fast 16-bit products"):
        shop.dtype_rows(["bfloat16"])


def test_nothing_is_loaded_before_it_is_needed_and_all_is_let_go() -> None:
    made = workshop.Workshop("quick")
    assert not {"subject", "work", "inputs"} & set(vars(made))
    made.subject = made.work = "something large"  # type: ignore[assignment]
    made.clear()
    assert not {"subject", "work", "inputs"} & set(vars(made))
