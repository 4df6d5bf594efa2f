"""AWQ: make inputs that carry much smaller and their weights larger, before rounding.

``W x = (W s) (x / s)``: the division is folded into what produces x (a norm's weight, or the rows
of the layer before), so nothing is added at run time and no byte is stored more. Weights of
important inputs then lose less to rounding. ``s = mean|x|^alpha``; alpha is searched.
Source: Lin et al., AWQ (arXiv 2306.00978), section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.quantized import dequantize, quantize
from turbo_lab.numerics.schemes import Scheme
from turbo_lab.precision.weights.calibration import LayerInputs
from turbo_lab.precision.weights.gptq import output_error
from turbo_lab.precision.weights.layers import set_weight, weight_of

DEFAULT_ALPHAS = tuple(i / 10 for i in range(10))


@dataclass(frozen=True)
class Fold:
    """A producer and the layers that read its output, as module names inside a block.

    ``rows``: the producer is a linear layer whose outputs are divided (else a norm's weight).
    """

    producer: str
    readers: tuple[str, ...]
    rows: bool = False


# The value projection could feed the output projection in the same way; with grouped-query
# attention it has fewer outputs than that one has inputs, so it is left out, as AWQ does.
LLAMA_FOLDS = (
    Fold("input_layernorm", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
    Fold("post_attention_layernorm", ("mlp.gate_proj", "mlp.up_proj")),
    Fold("mlp.up_proj", ("mlp.down_proj",), rows=True),
)


@dataclass(frozen=True, eq=False)
class Smoothing:
    """The scales found for one fold. ``error`` and ``plain_error``: output errors with and without,
    summed over the readers.
    """

    scales: np.ndarray
    alpha: float
    error: float
    plain_error: float


def search_scales(
    weights: Sequence[np.ndarray],
    scheme: Scheme,
    *,
    inputs: LayerInputs,
    alphas: Sequence[float] = DEFAULT_ALPHAS,
) -> Smoothing:
    """The alpha whose scales give the smallest output error of all readers together.

    ``s = mean|x|^alpha / sqrt(max s * min s)``; alpha 0 is plain rounding, so the result is never
    worse on the calibration text. Raises UsageError without alphas.
    """
    if not alphas:
        raise UsageError("alphas is empty; give at least one number from 0 to 1")
    found: list[Smoothing] = []
    plain = _error(weights, scheme, scales=np.ones_like(inputs.mean_abs), inputs=inputs)
    for alpha in alphas:
        scales = _scales(inputs.mean_abs, alpha)
        error = plain if alpha == 0 else _error(weights, scheme, scales=scales, inputs=inputs)
        found.append(Smoothing(scales, alpha, error, plain))
    return min(found, key=lambda s: s.error)


def smooth_model(
    model: Any,
    scheme: Scheme,
    *,
    inputs: Mapping[str, LayerInputs],
    blocks: Sequence[int] | None = None,
    folds: Sequence[Fold] = LLAMA_FOLDS,
    alphas: Sequence[float] = DEFAULT_ALPHAS,
    prefix: str = "model.layers",
) -> dict[str, Smoothing]:
    """Search and fold scales into a model, in place; the model computes the same as before.

    Returns the scales found under each producer's name. ``inputs``: of the unchanged model;
    ``blocks``: decoder blocks to treat (default: all).
    """
    chosen: dict[str, Smoothing] = {}
    count = len(model.get_submodule(prefix))
    for block in range(count) if blocks is None else blocks:
        for fold in folds:
            readers = [f"{prefix}.{block}.{name}" for name in fold.readers]
            producer = f"{prefix}.{block}.{fold.producer}"
            best = search_scales(
                [weight_of(model, name) for name in readers],
                scheme,
                inputs=inputs[readers[0]],
                alphas=alphas,
            )
            _fold(model, fold, producer=producer, readers=readers, scales=best.scales)
            chosen[producer] = best
    return chosen


def _fold(
    model: Any, fold: Fold, *, producer: str, readers: Sequence[str], scales: np.ndarray
) -> None:
    for name in readers:
        set_weight(model, name, weight_of(model, name) * scales)
    before = weight_of(model, producer)
    set_weight(model, producer, before / (scales[:, None] if fold.rows else scales))


def _scales(mean_abs: np.ndarray, alpha: float) -> np.ndarray:
    scales = np.maximum(mean_abs.astype(np.float64), 1e-8) ** alpha
    scales = np.clip(scales / np.sqrt(scales.max() * scales.min()), 1e-4, 1e4)
    return scales.astype(np.float32)


def _error(
    weights: Sequence[np.ndarray], scheme: Scheme, *, scales: np.ndarray, inputs: LayerInputs
) -> float:
    return sum(
        output_error(w, dequantize(quantize(w * scales, scheme)) / scales, hessian=inputs.hessian)
        for w in weights
    )
