"""Stored records that a lesson quotes: of a whole study, as a table, and of another notebook."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbo_lab.core.errors import RecordError, UnmeasuredError
from turbo_lab.course.replay import Recorded
from turbo_lab.experiment.arms import observed
from turbo_lab.records import store
from turbo_lab.records.schema import Measurement, Prediction, Record

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class StoredStudy:
    """One sweep with all its restarts: a row per value of the varied setting."""

    record: Record

    @property
    def key(self) -> str:
        """The varied setting."""
        return str(self.record.variables["varied"])

    @property
    def values(self) -> list[Any]:
        """Its values, in the order of the study; the first is what the others are compared with."""
        return list(self.record.variables[self.key])

    @property
    def question(self) -> str:
        """What the study asks."""
        return str(self._observed("question"))

    def frame(self) -> pd.DataFrame:
        """Median, lowest and highest of the restarts, and the verdict against the first value.

        Units stand in the headings. A value that was not measured has empty cells.
        """
        import pandas as pd

        found = {m.name.split(f"{self.key}=")[-1]: m for m in self.record.measurements}
        base, *others = (str(v) for v in self.values if str(v) in found)
        verdicts = dict(zip(others, self._observed("comparisons"), strict=False))
        first = self.record.measurements[0]
        what = f"{first.name.split(' at ')[0]} [{first.unit}]"
        rows = []
        for value in map(str, self.values):
            samples = list(found[value].samples) if value in found else []
            rows.append({
                what: statistics.median(samples) if samples else None,
                "lowest": min(samples, default=None),
                "highest": max(samples, default=None),
                "restarts": len(samples),
                f"against {base}": _verdict(verdicts.get(value)),
            })  # fmt: skip
        return pd.DataFrame(rows, index=pd.Index(self.values, name=self.key, dtype=object))

    def _observed(self, name: str) -> Any:
        data = observed(self.record, name)
        if data is None:
            raise RecordError(f"the record of {self.record.study!r} has no {name!r}: not a study")
        return data


@dataclass(frozen=True)
class StoredNotebook:
    """What another notebook has measured, wherever that was; quote ``label`` beside its numbers."""

    record: Record

    @property
    def label(self) -> str:
        """``recorded on <machine>, <date>``."""
        return Recorded(self.record).label

    def measured(self, name: str) -> float:
        """A measurement of that run. Raises UnmeasuredError where it has no number."""
        return self._value(name, self.record.measurements)

    def predicted(self, name: str) -> float:
        """A prediction of that run. Raises UnmeasuredError where it has no number."""
        return self._value(name, self.record.predictions)

    def observed(self, name: str) -> Any:
        """An observation of that run. Raises UnmeasuredError where it has none."""
        data = observed(self.record, name)
        if data is None:
            raise UnmeasuredError(f"the record of {self.record.study} has no {name}")
        return data

    def _value(self, name: str, rows: Sequence[Measurement] | Sequence[Prediction]) -> float:
        for row in rows:
            if row.name == name and row.value is not None:
                return row.value
        raise UnmeasuredError(f"the record of {self.record.study} has no number for {name}")


def stored_notebook(
    notebook: str, *, effort: str = "quick", folder: str | Path | None = None
) -> StoredNotebook:
    """The stored record of a notebook (``"06"``), of that effort where there is one.

    Raises RecordError naming the missing path and how to make it.
    """
    return StoredNotebook(store.load(store.find(f"nb{notebook}", effort=effort, folder=folder)))


def stored_study(name: str, *, folder: str | Path | None = None) -> StoredStudy:
    """The stored record of one study, its ``full`` one where there is one.

    Raises RecordError naming the missing path and how to make it.
    """
    return StoredStudy(store.load(store.find(name, effort="full", folder=folder)))


def _verdict(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if row.get("effect") is None:
        return str(row["verdict"])
    return f"{row['effect']:+.0%}, {row['verdict']} (noise floor {row['noise_floor']:.0%})"
