"""GPTQ: round one input after the other and let the rest make up for the error.

The output error of a layer is ``tr(E H E^T)`` with ``E = W - W_q`` and ``H`` the mean of ``x x^T``
over calibration inputs. After rounding input j, the best correction of the inputs still open
follows from the inverse of H; its Cholesky factor holds all of these steps at once.
Source: Frantar et al., GPTQ (arXiv 2210.17323), algorithm 1.
"""

from __future__ import annotations

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.quantized import Quantized, set_parameters, snap, with_scales
from turbo_lab.numerics.schemes import Scheme, grouped_shape


def gptq(
    weight: np.ndarray,
    scheme: Scheme,
    *,
    hessian: np.ndarray,
    damping: float = 0.01,
    block: int = 128,
) -> Quantized:
    """Quantise a weight matrix so that the layer's output changes least.

    Args:
        weight: [outputs, inputs].
        scheme: per tensor, per output channel, or groups along the inputs (axis -1).
        hessian: [inputs, inputs], mean of ``x x^T``; see :mod:`.calibration`.
        damping: share of the mean diagonal that is added to the diagonal, so that inputs that
            barely occurred do not explode.
        block: inputs whose corrections are applied at once to the rest; speed, not result.

    Scales of groups are taken when their first input is reached, from weights corrected so far;
    all other scales from the weights as they came. Inputs are rounded in their own order.

    Raises:
        UsageError: shapes that do not fit, an axis other than the inputs, a Hessian of zeros.
    """
    columns = np.ascontiguousarray(weight.astype(np.float32).T)  # [inputs, outputs]
    _check(weight, scheme, hessian)
    dead = np.diag(hessian) <= 0
    columns[dead] = 0.0
    factor = _inverse_factor(hessian, dead=dead, damping=damping)
    group = scheme.group_size or len(columns)
    whole = None if scheme.granularity == "group" else _whole_parameters(columns, scheme)
    step = block if whole is not None else max(group, block // group * group)
    snapped = np.empty_like(columns)
    scales, zeros = [], []
    for start in range(0, len(columns), step):
        end = min(start + step, len(columns))
        errors = np.empty_like(columns[start:end])
        for j in range(start, end):
            if whole is None and j % group == 0:
                now = set_parameters(columns[j : j + group].T, scheme)
                scales.append(now[0])
                zeros.append(now[1])
            scale, zero = whole if whole is not None else (scales[-1], zeros[-1])
            snapped[j] = snap(columns[j][:, None], scheme, scales=scale, zeros=zero)[:, 0]
            errors[j - start] = (columns[j] - snapped[j]) / factor[j, j]
            columns[j + 1 : end] -= np.outer(factor[j, j + 1 : end], errors[j - start])
        columns[end:] -= factor[start:end, end:].T @ errors
    return _store(snapped.T, scheme, whole=whole, scales=scales, zeros=zeros)


def output_error(weight: np.ndarray, approximation: np.ndarray, *, hessian: np.ndarray) -> float:
    """Mean square error of the layer's outputs over the calibration inputs: ``tr(E H E^T) / out``.

    In the square of the output's unit; divide by :func:`output_power` for a relative error.
    """
    error = (weight - approximation).astype(np.float64)
    return float(np.einsum("oi,oi->", error @ hessian, error) / len(error))


def output_power(weight: np.ndarray, *, hessian: np.ndarray) -> float:
    """Mean square of the layer's outputs over the calibration inputs: ``tr(W H W^T) / outputs``."""
    return output_error(weight, np.zeros_like(weight), hessian=hessian)


def _check(weight: np.ndarray, scheme: Scheme, hessian: np.ndarray) -> None:
    inputs = weight.shape[-1]
    if weight.ndim != 2 or hessian.shape != (inputs, inputs):
        raise UsageError(
            f"weight {weight.shape} needs a Hessian of ({inputs}, {inputs}), not {hessian.shape}"
        )
    if scheme.granularity in ("none", "token") or scheme.axis % 2 != 1:
        raise UsageError(
            f"scheme {scheme.label} (axis {scheme.axis}); GPTQ works per tensor, per output "
            "channel or in groups along the inputs (axis -1)"
        )
    if not np.diag(hessian).any():
        raise UsageError("the Hessian is zero: no calibration input reached this layer")


def _inverse_factor(hessian: np.ndarray, *, dead: np.ndarray, damping: float) -> np.ndarray:
    """Upper triangular U with ``U^T U = H^-1``, float32."""
    damped = hessian.astype(np.float64).copy()
    diagonal = np.diag_indices_from(damped)
    damped[dead, dead] = 1.0
    damped[diagonal] += damping * damped[diagonal].mean()
    return np.linalg.cholesky(np.linalg.inv(damped)).T.astype(np.float32)


def _whole_parameters(columns: np.ndarray, scheme: Scheme) -> tuple[np.ndarray, np.ndarray | None]:
    """One scale per output; per tensor the same for all."""
    if scheme.granularity == "channel":
        return set_parameters(columns.T, scheme)
    scale, zero = set_parameters(columns.reshape(1, -1), scheme)
    outputs = columns.shape[1]
    return np.repeat(scale, outputs), None if zero is None else np.repeat(zero, outputs)


def _store(
    snapped: np.ndarray,
    scheme: Scheme,
    *,
    whole: tuple[np.ndarray, np.ndarray | None] | None,
    scales: list[np.ndarray],
    zeros: list[np.ndarray | None],
) -> Quantized:
    shape = grouped_shape(snapped.shape, scheme=scheme)
    if whole is not None:
        used_scales, used_zeros = whole
        if scheme.granularity == "tensor":
            used_scales, used_zeros = (
                used_scales[:1],
                used_zeros[:1] if used_zeros is not None else None,
            )
    else:
        used_scales = np.stack(scales, axis=-1)
        used_zeros = None if zeros[0] is None else np.stack(zeros, axis=-1)
    return with_scales(
        snapped,
        scheme,
        scales=used_scales.reshape(shape),
        zeros=None if used_zeros is None else used_zeros.reshape(shape),
    )
