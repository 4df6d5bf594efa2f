"""Recipes on a whole model: copies, bytes, skip lists, sensitivity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.quantized import dequantize
from turbo_lab.numerics.schemes import Scheme, stored_bytes
from turbo_lab.precision.weights.calibration import collect_inputs, token_windows
from turbo_lab.precision.weights.layers import linear_names, replaced, weight_of
from turbo_lab.precision.weights.recipe import Recipe, quantized_copy
from turbo_lab.precision.weights.sensitivity import (
    Sensitivity,
    parts_by_block,
    parts_by_kind,
    sensitivity,
    skip_list,
)

INT4 = Scheme("int4", "group", group_size=32, scale_dtype="bf16")


def loss_against(model: Any, windows: list[Any]) -> Any:
    """Mean square difference of the logits from those the model gives now."""
    import torch

    with torch.inference_mode():
        wanted = [model(ids[None]).logits.clone() for ids in windows]

    def score(candidate: Any) -> float:
        with torch.inference_mode():
            return float(sum(((candidate(i[None]).logits - w) ** 2).mean()
                             for i, w in zip(windows, wanted, strict=True)))  # fmt: skip

    return score


def test_linear_layers_of_the_blocks_and_no_others(tiny: Any) -> None:
    names = linear_names(tiny)
    assert len(names) == 2 * 7 and not any("lm_head" in n or "embed" in n for n in names)
    assert list(parts_by_block(tiny)) == ["block 0", "block 1"]
    assert len(parts_by_kind(tiny)["down_proj"]) == 2


def test_copy_holds_the_dequantised_weights_and_counts_every_parameter(tiny: Any) -> None:
    before = {n: weight_of(tiny, n) for n in linear_names(tiny)}
    made = quantized_copy(tiny, Recipe("rtn", INT4, skip=("*.down_proj",)))
    assert len(made.stored) == 12
    for name, weight in before.items():
        assert np.array_equal(weight_of(tiny, name), weight)  # the original is left alone
        if name in made.stored:
            assert np.array_equal(weight_of(made.model, name), dequantize(made.stored[name]))
    total = sum(p.numel() for p in tiny.parameters())
    assert made.plain_values + sum(q.count for q in made.stored.values()) == total
    assert made.packed_bytes == sum(
        stored_bytes(q.shape, scheme=INT4).total for q in made.stored.values()
    )
    assert made.bytes == made.packed_bytes + 2 * made.plain_values
    assert made.bits_per_weight == 4.5


def test_calibrated_methods_lose_less_than_rounding(tiny: Any, windows: list[Any]) -> None:
    score = loss_against(tiny, windows)
    inputs = collect_inputs(tiny, windows)
    recipes = {
        "rtn": Recipe("rtn", INT4), "gptq": Recipe("gptq", INT4, method="gptq"),
        "awq": Recipe("awq", INT4, smooth=True),
        "both": Recipe("both", INT4, method="gptq", smooth=True),
        "int8": Recipe("int8", Scheme("int8", "channel")),
    }  # fmt: skip
    loss = {k: score(quantized_copy(tiny, r, inputs=inputs).model) for k, r in recipes.items()}
    assert loss["int8"] < loss["both"]
    assert max(loss["gptq"], loss["awq"], loss["both"]) < loss["rtn"]


def test_missing_calibration_and_empty_recipes_are_refused(tiny: Any) -> None:
    with pytest.raises(UsageError, match="'g' needs calibration inputs"):
        quantized_copy(tiny, Recipe("g", INT4, method="gptq"))
    with pytest.raises(UsageError, match="leaves no layer"):
        quantized_copy(tiny, Recipe("none", INT4, skip=("*",)))


def test_replaced_weights_come_back_even_after_an_error(tiny: Any) -> None:
    name = linear_names(tiny)[0]
    before = weight_of(tiny, name)
    with pytest.raises(RuntimeError), replaced(tiny, {name: np.zeros_like(before)}):
        assert not weight_of(tiny, name).any()
        raise RuntimeError
    assert np.array_equal(weight_of(tiny, name), before)
    with pytest.raises(UsageError, match="has shape"), replaced(tiny, {name: np.zeros((2, 2))}):
        pass


def test_sensitivity_finds_the_block_that_matters(tiny: Any, windows: list[Any]) -> None:
    import torch

    with torch.no_grad():  # block 0 writes next to nothing into the residual stream
        for kind in ("self_attn.o_proj", "mlp.down_proj"):
            tiny.get_submodule(f"model.layers.0.{kind}").weight.mul_(1e-3)
    recipe = Recipe("int2", Scheme("int2", "channel"))
    score = loss_against(tiny, windows)
    rows = list(sensitivity(tiny, recipe, parts=parts_by_block(tiny), score=score))
    assert rows[1].damage > 5 * rows[0].damage > 0
    assert skip_list(rows, budget_bytes=rows[1].saved_bytes) == rows[1].layers


def test_skip_list_spends_its_budget_where_a_byte_helps_most() -> None:
    rows = [Sensitivity("a", ("a1", "a2"), 1.0, 100), Sensitivity("b", ("b1",), 0.9, 10),
            Sensitivity("c", ("c1",), 0.1, 5), Sensitivity("d", ("d1",), -0.1, 5)]  # fmt: skip
    assert skip_list(rows, budget_bytes=20) == ("b1", "c1")
    assert skip_list(rows, budget_bytes=110) == ("b1", "c1")  # a would need 115 in all
    assert skip_list(rows, budget_bytes=115) == ("b1", "c1", "a1", "a2")
    assert skip_list(rows, budget_bytes=0) == ()
    with pytest.raises(UsageError, match="budget_bytes is -1"):
        skip_list(rows, budget_bytes=-1)


def test_inputs_are_the_mean_over_all_tokens(tiny: Any, windows: list[Any]) -> None:
    import torch

    seen: list[Any] = []
    layer = tiny.get_submodule("model.layers.0.mlp.gate_proj")
    handle = layer.register_forward_pre_hook(lambda _m, args: seen.append(args[0][0]))
    inputs = collect_inputs(tiny, windows)
    handle.remove()
    x = torch.cat(seen).numpy()
    up = inputs["model.layers.0.mlp.up_proj"]
    assert up.tokens == len(x) == 256 and up is inputs["model.layers.0.mlp.gate_proj"]
    assert np.allclose(up.hessian, x.T @ x / 256, rtol=1e-3, atol=1e-3)
    assert np.allclose(up.mean_abs, np.abs(x).mean(axis=0), rtol=1e-3)


def test_windows_cut_text_without_loss() -> None:
    torch = pytest.importorskip("torch", reason="needs the cpu environment")
    parts = token_windows(torch.arange(7), window_tokens=3)
    assert [p.tolist() for p in parts] == [[0, 1, 2], [3, 4, 5]]  # one token alone says nothing
    assert len(token_windows(torch.arange(8), window_tokens=3)) == 3
    with pytest.raises(UsageError, match="window_tokens is 1"):
        token_windows(torch.arange(7), window_tokens=1)
    with pytest.raises(UsageError, match="holds 1 tokens"):
        token_windows(torch.arange(1), window_tokens=4)
