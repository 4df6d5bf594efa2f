"""Numbers as text, the same on every machine, and the small values that cells show."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.records.schema import Measurement


def format_number(value: float | None) -> str:
    """Whole numbers with thousands separators, others with four significant digits."""
    if value is None:
        return "unknown"
    if isinstance(value, int) or (float(value).is_integer() and 1e4 <= abs(value) < 1e15):
        return f"{int(value):,}"
    if 1e3 <= abs(value) < 1e15:
        return f"{value:,.1f}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:.4g}"


def format_allowed(tolerance: float | None, band: tuple[float | None, float | None] | None) -> str:
    """A prediction's criterion: ``exact``, ``within 10 %`` or ``0.8 to 1.2``."""
    if band is not None:
        low, high = (None if end is None else format_number(end) for end in band)
        if low is None:
            return f"at most {high}"
        return f"{low} to {high}" if high is not None else f"at least {low}"
    return "exact" if not tolerance else f"within {100 * tolerance:.4g} %"


def present_cell() -> int | None:
    """The running cell's execution count; None outside a notebook. Imports nothing."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return None if shell is None else getattr(shell, "execution_count", None)


class Line:
    """A value that a call has already printed as one line.

    As the last expression of that same cell it is not shown a second time; in a later cell it is.
    """

    line: str
    cell: int | None

    def __repr__(self) -> str:
        return self.line

    def _ipython_display_(self) -> None:
        if self.cell is None or self.cell != present_cell():
            print(self.line)


@dataclass(frozen=True, repr=False)
class Locked(Line):
    """A stored prediction. ``value`` is None when it could not be computed (see ``line``)."""

    name: str
    value: float | None
    unit: str
    line: str
    cell: int | None


@dataclass(frozen=True, repr=False)
class Measured(Line):
    """A measured or replayed number: ``value`` (None when unmeasured), ``samples``, ``reason``.

    ``float(...)`` and ``int(...)`` raise UnmeasuredError instead of standing in for the number.
    """

    name: str
    value: float | None
    unit: str
    samples: tuple[float | None, ...]
    reason: str | None
    line: str
    cell: int | None

    @classmethod
    def of(cls, measurement: Measurement, *, label: str = "") -> Measured:
        """Show a measurement; ``label`` says where a replayed number comes from."""
        name, unit, value = measurement.name, measurement.unit, measurement.value
        if value is None:
            line = f"{name} is unmeasured: {measurement.reason}"
        else:
            n = len(measurement.samples)
            line = f"measured {name}: {format_number(value)} {unit}"
            line += f", {measurement.statistic} of {n} samples" if n > 1 else ""
            line += f" ({label})" if label else ""
        return cls(
            name=name,
            value=value,
            unit=unit,
            samples=measurement.samples,
            reason=measurement.reason,
            line=line,
            cell=present_cell(),
        )

    def number(self) -> float:
        """The value as it was measured. Raises UnmeasuredError with the reason."""
        if self.value is None:
            raise UnmeasuredError(f"{self.name} is unmeasured: {self.reason}")
        return self.value

    def __float__(self) -> float:
        return float(self.number())

    def __int__(self) -> int:
        return int(self.number())

    def __bool__(self) -> bool:
        """True when there is a number, zero included."""
        return self.value is not None

    def __format__(self, spec: str) -> str:
        return f"unmeasured ({self.reason})" if self.value is None else format(self.value, spec)


class Absent:
    """Stands for an engine that is not there: any use of it is an UnmeasuredError.

    So a measuring function that asks it ends as ``unmeasured: reason``, in its own words.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnmeasuredError(self._reason)

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"no engine: {self._reason}"
