"""AWQ's scales: the folded model is the same model, and important inputs lose less."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.quantized import dequantize, quantize
from turbo_lab.numerics.schemes import Scheme
from turbo_lab.precision.weights.calibration import LayerInputs, collect_inputs
from turbo_lab.precision.weights.gptq import output_error
from turbo_lab.precision.weights.smooth import search_scales, smooth_model

SCHEME = Scheme("int4", "group", group_size=32)


def uneven_inputs(size: int = 96) -> LayerInputs:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, size)) * np.where(np.arange(size) % 24 == 0, 30, 1)
    return LayerInputs((x.T @ x / 500).astype(np.float32),
                       np.abs(x).mean(axis=0).astype(np.float32), 500)  # fmt: skip


def test_search_beats_plain_rounding_where_inputs_are_uneven() -> None:
    weight = np.random.default_rng(1).standard_normal((32, 96)).astype(np.float32)
    inputs = uneven_inputs()
    found = search_scales([weight], SCHEME, inputs=inputs)
    assert found.alpha > 0 and found.error < 0.6 * found.plain_error
    plain = output_error(weight, dequantize(quantize(weight, SCHEME)), hessian=inputs.hessian)
    assert found.plain_error == pytest.approx(plain)


def test_even_inputs_want_no_scales() -> None:
    weight = np.random.default_rng(1).standard_normal((32, 96)).astype(np.float32)
    even = LayerInputs(np.eye(96, dtype=np.float32), np.ones(96, dtype=np.float32), 1)
    found = search_scales([weight], SCHEME, inputs=even)
    assert found.alpha == 0 and (found.scales == 1).all()
    with pytest.raises(UsageError, match="alphas is empty"):
        search_scales([weight], SCHEME, inputs=even, alphas=())


def test_folded_model_computes_the_same(tiny: Any, windows: list[Any]) -> None:
    import torch

    inputs = collect_inputs(tiny, windows)
    with torch.inference_mode():
        before = tiny(windows[0][None]).logits.clone()
    found = smooth_model(tiny, SCHEME, inputs=inputs, alphas=(0.5,))
    with torch.inference_mode():
        after = tiny(windows[0][None]).logits
    assert len(found) == 2 * 3 and all(np.ptp(s.scales) > 0 for s in found.values())
    assert torch.allclose(before, after, rtol=1e-3, atol=1e-3 * float(before.abs().max()))


def test_inputs_of_the_folded_model_are_the_divided_ones(tiny: Any, windows: list[Any]) -> None:
    before = collect_inputs(tiny, windows)
    found = smooth_model(tiny, SCHEME, inputs=before, alphas=(0.5,))
    after = collect_inputs(tiny, windows)
    name = "model.layers.1.mlp.down_proj"
    predicted = before[name].divided_by(found["model.layers.1.mlp.up_proj"].scales)
    assert np.allclose(after[name].hessian, predicted.hessian, rtol=1e-2,
                       atol=1e-3 * predicted.hessian.max())  # fmt: skip
    assert np.allclose(after[name].mean_abs, predicted.mean_abs, rtol=1e-2)
