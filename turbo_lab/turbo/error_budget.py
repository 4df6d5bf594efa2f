"""How large the table machine's error must be, from four roundings, before it is run.

Per merge with the bigger part's weight w and the parts' distance D, in squared value codes:

    e^2 <- w^2 e_a^2 + (1 - w)^2 e_b^2 + 2/12 + D^2 (q^2/12 + (ln 2 w (1 - w))^2 s_delta^2)

``1/12`` is the variance of one rounding; each part starts with it. ``q`` is a step of the weight
code, ``s_delta^2`` the variance of the difference of two gammas: ``g^2/12`` for every rounding of a
gamma so far, with g one gamma step. Uniform roundings are assumed (Bennett 1948), saturation is
left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.turbo.merge import merge
from turbo_lab.turbo.tables import TableMachine


@dataclass(frozen=True)
class ErrorBudget:
    """Root mean square errors in value codes, by source; ``total`` is not their plain sum."""

    values: float
    products: float
    weights: float
    gammas: float

    @property
    def total(self) -> float:
        """``sqrt`` of the sum of squares."""
        parts = (self.values, self.products, self.weights, self.gammas)
        return float(np.sqrt(sum(part**2 for part in parts)))

    def largest(self) -> str:
        """Name of the largest source."""
        names = ("values", "products", "weights", "gammas")
        return max(names, key=lambda name: getattr(self, name))


def error_budget(values: np.ndarray, log2_weights: np.ndarray, *, machine: TableMachine
                 ) -> ErrorBudget:  # fmt: skip
    """The budget of a chain of merges.

    Args:
        values: (n, heads, dim) exact values in units of a code step.
        log2_weights: (n, heads), exact, in base-2 logarithms.
        machine: whose widths count.
    """
    if len(values) < 1:
        raise UsageError("there is no part to merge")
    weight_step = 1 / machine.weight_whole
    names = ("values", "products", "weights", "gammas")
    square = {name: np.zeros(values.shape[1:]) for name in names}
    square["values"] += 1 / 12
    running, gamma, roundings = values[0], log2_weights[0], 1
    for part, part_gamma in zip(values[1:], log2_weights[1:], strict=True):
        delta = np.abs(gamma - part_gamma)
        big = 1 / (1 + np.exp2(-delta))
        first = np.where(gamma >= part_gamma, big, 1 - big)[:, None]
        apart = (running - part) ** 2
        for name in names:
            start = 1 / 12 if name == "values" else 0.0
            square[name] = first**2 * square[name] + (1 - first) ** 2 * start
        square["products"] += 2 / 12
        square["weights"] += apart * weight_step**2 / 12
        slope = (np.log(2) * big * (1 - big))[:, None]
        square["gammas"] += apart * slope**2 * machine.gamma_step**2 / 12 * (roundings + 1)
        running, gamma = merge(np.stack([running, part]), np.stack([gamma, part_gamma]))
        roundings += 1
    return ErrorBudget(**{name: float(np.sqrt(square[name].mean())) for name in names})


def measured_rms(
    values: np.ndarray, log2_weights: np.ndarray, *, machine: TableMachine, offset: np.ndarray
) -> float:
    """Root mean square difference in value codes between the machine's merge and the exact one."""
    codes = machine.code_values(values, scale=1.0)
    gammas = machine.code_gamma(log2_weights, offset=offset)
    got, _ = machine.merge(codes, gammas)
    return float(np.sqrt(np.mean((got - merge(values, log2_weights)[0]) ** 2)))
