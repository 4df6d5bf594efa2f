"""Fitting times by costs that cannot be negative, on relative errors, robust against outliers."""

from __future__ import annotations

import numpy as np

ROBUST_ROUNDS = 20
SMALLEST_ERROR = 0.005  # errors below half a percent are noise and get no more weight


def robust_nonnegative_fit(columns: np.ndarray, seconds: np.ndarray) -> tuple[float, ...]:
    """Coefficients of 0 or more with the least sum of absolute relative errors.

    ``columns``: shape (points, costs); ``seconds``: shape (points,), above 0. Non-negative least
    squares, reweighted (IRLS).
    """
    weights = np.ones(len(seconds))
    found = np.zeros(columns.shape[1])
    for _ in range(ROBUST_ROUNDS):
        found = nonnegative_fit(columns, seconds, weights=weights)
        errors = np.abs(columns @ found / seconds - 1)
        weights = 1 / np.maximum(errors, SMALLEST_ERROR)
    return tuple(float(value) for value in found)


def nonnegative_fit(
    columns: np.ndarray, seconds: np.ndarray, *, weights: np.ndarray | None = None
) -> np.ndarray:
    """Coefficients of 0 or more with the least sum of (weighted) squared relative errors."""
    from scipy.optimize import nnls

    relative = columns / seconds[:, None]
    scale = np.abs(relative).max(axis=0)
    scale[scale == 0] = 1.0
    root = np.ones(len(seconds)) if weights is None else np.sqrt(weights)
    found, _ = nnls(relative / scale * root[:, None], root)
    return found / scale
