"""GPTQ: never off its grid, better on the output than rounding, equal to a naive version."""

from __future__ import annotations

import numpy as np
import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.quantized import dequantize, quantize
from turbo_lab.numerics.schemes import Scheme, stored_bytes
from turbo_lab.precision.weights.gptq import gptq, output_error, output_power

SCHEMES = [
    Scheme("int4", "channel"),
    Scheme("int4", "tensor"),
    Scheme("int4", "group", group_size=32, scale_dtype="bf16"),
    Scheme("int4", "group", group_size=40, zero="code", scale_dtype="fp16"),
    Scheme("int4", "group", group_size=32, zero="value", scale_dtype="fp16"),
    Scheme("nf4", "group", group_size=32),
    Scheme("fp8_e4m3", "channel"),
]
Data = tuple[np.ndarray, np.ndarray]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.label)
def test_output_error_is_far_below_rounding(scheme: Scheme, correlated: Data) -> None:
    weight, hessian = correlated
    ours, plain = gptq(weight, scheme, hessian=hessian), quantize(weight, scheme)
    errors = [output_error(weight, dequantize(q), hessian=hessian) for q in (ours, plain)]
    assert errors[0] < 0.5 * errors[1]
    assert ours.bytes == plain.bytes == stored_bytes(weight.shape, scheme=scheme).total


def test_equals_the_inverse_updated_step_by_step(correlated: Data) -> None:
    """Optimal brain quantisation as it is derived: the inverse is reduced after every input."""
    weight, hessian = correlated
    scheme = Scheme("int4", "channel")
    scales = quantize(weight, scheme).scale_values
    damped = hessian.astype(np.float64) + 0.01 * np.diag(hessian).mean() * np.eye(96)
    open_weights, inverse = weight.astype(np.float64).copy(), np.linalg.inv(damped)
    for j in range(96):
        old = open_weights[:, j].copy()
        open_weights[:, j] = np.clip(np.rint(old / scales[:, 0]), -8, 7) * scales[:, 0]
        error = (old - open_weights[:, j]) / inverse[j, j]
        open_weights[:, j + 1 :] -= np.outer(error, inverse[j, j + 1 :])
        inverse -= np.outer(inverse[:, j], inverse[j]) / inverse[j, j]
    ours = dequantize(gptq(weight, scheme, hessian=hessian))
    assert np.mean(np.abs(ours - open_weights) < 1e-6) > 0.99  # a tie may fall the other way


def test_without_correlation_it_is_rounding() -> None:
    weight = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
    for scheme in (Scheme("int4", "channel"), Scheme("int4", "group", group_size=8)):
        ours = gptq(weight, scheme, hessian=np.eye(32))
        assert np.array_equal(ours.codes, quantize(weight, scheme).codes)


def test_block_size_changes_no_result(correlated: Data) -> None:
    weight, hessian = correlated
    for scheme in (SCHEMES[0], SCHEMES[2]):
        small, large = (gptq(weight, scheme, hessian=hessian, block=b) for b in (32, 96))
        assert np.mean(small.codes == large.codes) > 0.99


def test_inputs_that_never_occur_are_dropped(correlated: Data) -> None:
    weight, hessian = correlated
    hessian = hessian.copy()
    hessian[5] = hessian[:, 5] = 0
    assert not dequantize(gptq(weight, SCHEMES[0], hessian=hessian))[:, 5].any()


def test_output_error_is_that_of_real_outputs() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((50, 6)), rng.standard_normal((3, 6)).astype(np.float32)
    hessian = x.T @ x / 50
    assert output_power(w, hessian=hessian) == pytest.approx(np.mean((x @ w.T) ** 2))


def test_wrong_use_is_refused(correlated: Data) -> None:
    weight, hessian = correlated
    with pytest.raises(UsageError, match=r"needs a Hessian of \(96, 96\), not \(4, 4\)"):
        gptq(weight, SCHEMES[0], hessian=np.eye(4))
    with pytest.raises(UsageError, match="no calibration input reached"):
        gptq(weight, SCHEMES[0], hessian=np.zeros((96, 96)))
    with pytest.raises(UsageError, match="per output channel or in groups"):
        gptq(weight, Scheme("int4", "channel", axis=0), hessian=hessian)
