"""Why a scale shared by too many weights fails: its step against the weights' own spread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.error import error_bound, uniform_mse
from turbo_lab.numerics.integers import IntFormat
from turbo_lab.numerics.quantized import dequantize, quantize
from turbo_lab.numerics.schemes import Scheme

BINS = 81
EDGE = 10.0  # the histogram reaches so many root mean squares to either side


@dataclass(frozen=True)
class Spread:
    """One matrix under one scheme.

    Attributes:
        step: median step between neighbouring points of the grid over the weights' root mean
            square.
        to_zero: share of the weights that become zero.
        relative: root mean square of the error over that of the weights.
        predicted: the same by the closed form ``step / sqrt(12)`` (integers; None elsewhere).
        beyond_bound: weights whose error exceeds the bound of the scheme.
    """

    matrix: str
    scheme: str
    step: float | None
    to_zero: float
    relative: float
    predicted: float | None
    beyond_bound: int

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def spread(matrix: str, weight: np.ndarray, *, name: str, scheme: Scheme) -> Spread:
    """Quantise a weight matrix and say how coarse the grid is for it.

    Raises UsageError for a matrix of zeros, which has no spread.
    """
    rms = _rms(weight)
    if rms == 0:
        raise UsageError(f"{matrix} holds only zeros; it has no spread to compare a step with")
    stored = quantize(weight, scheme)
    back = dequantize(stored)
    error = np.abs(weight - back)
    whole = isinstance(scheme.number, IntFormat)
    return Spread(
        matrix=matrix,
        scheme=name,
        step=float(np.median(stored.scale_values)) / rms if whole else None,
        to_zero=float(np.mean(back == 0)),
        relative=_rms(error) / rms,
        predicted=uniform_mse(stored) ** 0.5 / rms if whole else None,
        beyond_bound=int(np.sum(error > error_bound(stored))),
    )


def outlier_ratio(weight: np.ndarray) -> float:
    """Largest magnitude over the root mean square: how much one weight stretches the grid."""
    return float(np.abs(weight).max() / _rms(weight))


def histogram(weight: np.ndarray) -> dict[str, list[float]]:
    """Share of the weights per bin, in root mean squares: ``edges`` (one more) and ``shares``."""
    edges = np.linspace(-EDGE, EDGE, BINS + 1)
    counts, _ = np.histogram(weight / _rms(weight), bins=edges)
    return {"edges": edges.tolist(), "shares": (counts / weight.size).tolist()}


def grid_lines(weight: np.ndarray, schemes: Mapping[str, Scheme]) -> dict[str, list[float]]:
    """For each scheme the points of the grid in the middle of the matrix, in root mean squares.

    The scale is the median one; a symmetric integer scheme only.
    """
    out: dict[str, list[float]] = {}
    for name, scheme in schemes.items():
        kind = scheme.number
        if not isinstance(kind, IntFormat) or not scheme.symmetric:
            raise UsageError(f"{name}: a grid of equal steps needs a symmetric integer scheme")
        step = float(np.median(quantize(weight, scheme).scale_values)) / _rms(weight)
        points = step * np.arange(int(kind.lowest), int(kind.max) + 1)
        out[name] = points.tolist()
    return out


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
