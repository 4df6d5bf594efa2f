"""The stored record of a whole study (``turbo-lab study NAME``), as a table for a lesson."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbo_lab.core.errors import RecordError
from turbo_lab.experiment.arms import observed
from turbo_lab.records import store
from turbo_lab.records.schema import Record

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
