"""Whole numbers and tables of values: the formats that mean nothing without a scale."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.arrays import as_float32, require_no_nan


@dataclass(frozen=True)
class IntFormat:
    """Whole numbers from ``-2^(bits-1)`` to ``2^(bits-1) - 1``; beyond them it saturates.

    Codes are offset-binary: code = number + ``2^(bits-1)``, so that they are never negative and
    zero is the middle code. This is the layout of GPTQ and compressed-tensors checkpoints.
    """

    name: str
    bits: int

    @property
    def offset(self) -> int:
        """The code of zero."""
        return 1 << (self.bits - 1)

    @property
    def levels(self) -> int:
        """Steps from the lowest to the highest number."""
        return (1 << self.bits) - 1

    @property
    def max(self) -> float:
        """Largest number."""
        return float(self.offset - 1)

    @property
    def lowest(self) -> float:
        """Lowest number."""
        return float(-self.offset)

    def encode(self, values: Any, *, saturate: bool = True) -> np.ndarray:
        """Codes of the nearest whole numbers, ties to even. Raises UsageError for NaN."""
        x = as_float32(values)
        require_no_nan(x, what=f"{self.name} values")
        if not saturate and (np.abs(x + 0.5) > self.offset).any():
            raise UsageError(
                f"values from {x.min():g} to {x.max():g} exceed {self.name}, which holds "
                f"{self.lowest:g} to {self.max:g}. Scale them first, or pass saturate=True."
            )
        whole = np.clip(np.rint(x), self.lowest, self.max)
        return (whole + self.offset).astype(np.uint8)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """The float32 value of each code."""
        return np.asarray(codes).astype(np.float32) - np.float32(self.offset)

    def half_step(self, codes: np.ndarray) -> np.ndarray:
        """One half for every code."""
        return np.full(np.shape(codes), 0.5, dtype=np.float32)


@dataclass(frozen=True)
class CodebookFormat:
    """Values out of a sorted table; beyond its ends it saturates. Ties go to the lower code."""

    name: str
    bits: int
    values: tuple[float, ...]

    @property
    def max(self) -> float:
        """Largest value of the table."""
        return self.values[-1]

    @property
    def lowest(self) -> float:
        """Lowest value of the table."""
        return self.values[0]

    @cached_property
    def table(self) -> np.ndarray:
        """The table as float32."""
        return np.array(self.values, dtype=np.float32)

    def encode(self, values: Any, *, saturate: bool = True) -> np.ndarray:
        """Codes of the nearest table entries. Raises UsageError for NaN."""
        x = as_float32(values)
        require_no_nan(x, what=f"{self.name} values")
        if not saturate and (np.abs(x) > self.max).any():
            raise UsageError(
                f"values beyond {self.max:g} exceed {self.name}; scale them, or saturate."
            )
        wide = self.table.astype(np.float64)
        return np.searchsorted((wide[:-1] + wide[1:]) / 2, x, side="left").astype(np.uint8)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """The float32 value of each code."""
        return self.table[np.asarray(codes)]

    def half_step(self, codes: np.ndarray) -> np.ndarray:
        """Half the wider gap beside each entry."""
        gap = np.diff(self.table)
        wider = np.maximum(np.concatenate([gap[:1], gap]), np.concatenate([gap, gap[-1:]]))
        return (0.5 * wider)[np.asarray(codes)]
