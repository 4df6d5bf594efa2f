"""One side of a comparison: the records of one configuration, and its samples of a metric."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import RecordError, TurboLabError
from turbo_lab.core.host import user_path
from turbo_lab.experiment import settings
from turbo_lab.experiment.metric_names import MetricName
from turbo_lab.experiment.run_folder import RECORD_NAME, REQUESTS_NAME
from turbo_lab.metrics.percentiles import percentile
from turbo_lab.records import store
from turbo_lab.records.schema import Gate, Measurement, Record

LEAST_SAMPLES = 5  # W19: three against three can never be significant, five against five can.
REQUESTS_PER_BLOCK, MOST_BLOCKS = 5, 20


@dataclass(frozen=True)
class Samples:
    """What is compared. ``unit`` says what one sample is; restarts are worth most."""

    values: tuple[float, ...]
    unit: str
    starts: int
    why_not: str = ""


@dataclass(frozen=True)
class Arm:
    """Records of one configuration (several: its restarts or repeats)."""

    path: str
    records: tuple[Record, ...]

    def settings(self) -> dict[str, Any]:
        """The settings that all its records share. Raises RecordError when they differ."""
        first = settings.of_record(self.records[0])
        for record in self.records[1:]:
            if changed := settings.differences(first, settings.of_record(record)):
                raise RecordError(
                    f"the runs in {self.path} are not repeats of one configuration: "
                    f"{', '.join(changed)} differ. Give the folder of one configuration"
                )
        return first

    def starts(self) -> int:
        """How many starts of the server took part; runs of an unknown start count as one."""
        return len({str((observed(r, "target") or {}).get("server_start")) for r in self.records})

    def gates(self) -> list[Gate]:
        """All gates of all its runs."""
        return [gate for record in self.records for gate in record.gates]

    def mean_of(self, observation: str, key: str) -> float | None:
        """Mean over its runs of one observed number; None where none has it."""
        found = [(observed(r, observation) or {}).get(key) for r in self.records]
        known = [v for v in found if isinstance(v, int | float)]
        return statistics.fmean(known) if known else None


def observed(record: Record, name: str) -> Any:
    """Data of one observation, None where it is missing."""
    return next((o.data for o in record.observations if o.name == name), None)


def load_arm(path: str | Path) -> Arm:
    """A record file, a run folder, or a folder of run folders (restarts).

    Raises RecordError when there is no record or one of them is damaged.
    """
    place = user_path(path)
    if place.is_file():
        return Arm(str(path), (_load(place),))
    if (place / RECORD_NAME).is_file():
        return Arm(str(path), (store.load(place / RECORD_NAME),))
    found = sorted(place.glob(f"*/{RECORD_NAME}")) if place.is_dir() else []
    if not found:
        raise RecordError(_no_record(path, place))
    return Arm(str(path), tuple(store.load(file) for file in found))


def _load(file: Path) -> Record:
    try:
        return store.load(file)
    except RecordError as error:
        if file.suffix == ".json":
            raise
        raise RecordError(f"{error} Give record.json, or the folder of a run.") from error


def _no_record(path: str | Path, place: Path) -> str:
    if (place / REQUESTS_NAME).is_file():
        return (
            f"the run in {path} has no record yet: it was cut off. Finish it first with its own "
            f"options and: turbo-lab bench ... --resume --out {path}"
        )
    what = "it holds none" if place.exists() else "it does not exist"
    return (
        f"There is no record at {path}: {what}. Give record.json, the folder of a run, or a folder "
        "of such folders"
    )


def measured(record: Record, metric: MetricName) -> Measurement | None:
    """The measurement behind a metric."""
    return next((m for m in record.measurements if m.name == metric.base), None)


def definition(arm: Arm, metric: MetricName) -> str | None:
    """How the arm defines the metric. Raises TurboLabError when its own runs disagree."""
    texts = {m.definition for r in arm.records if (m := measured(r, metric)) is not None}
    if len(texts) > 1:
        raise TurboLabError(f"{arm.path} holds two definitions of {metric.base}: {sorted(texts)}")
    return texts.pop() if texts else None


def samples(arm: Arm, metric: MetricName) -> Samples:
    """One value per run when there are several, else one per block of the single run's requests.

    Blocks are stretches of consecutive requests: their scatter shows drifts within the run, and
    nothing of what a restart would change.
    """
    starts = arm.starts()
    if len(arm.records) > 1:
        values = [statistic_of(measured(r, metric), metric) for r in arm.records]
        known = tuple(v for v in values if v is not None)
        unit = "restarts" if starts == len(arm.records) else "repeats"
        return Samples(known, unit, starts, _why(arm, metric) if not known else "")
    found = measured(arm.records[0], metric)
    values = tuple(blocks(found, metric)) if found is not None else ()
    why = _too_few(arm.records[0], metric) if values else _why(arm, metric)
    return Samples(values, "blocks of one run", starts, why)


def _too_few(record: Record, metric: MetricName) -> str:
    """Why the stretches of one run say nothing: one request fills many of them with its own pace.

    Empty where there are requests enough, or where the record does not tell how many there were.
    """
    ends = next((m.samples for m in record.measurements if m.name == "e2e_s"), None)
    if metric.lower_is_better or ends is None:
        return ""
    count = sum(value is not None for value in ends)
    if count >= LEAST_SAMPLES:
        return ""
    return (
        f"{metric.base} comes from {count} request{'s' * (count != 1)}; a verdict needs at least "
        f"{LEAST_SAMPLES} (--requests)"
    )


def _why(arm: Arm, metric: MetricName) -> str:
    found = measured(arm.records[0], metric)
    if found is None:
        return f"{arm.path} has no metric {metric.base}"
    return f"{metric.base} is unmeasured in {arm.path}: {found.reason or 'it has no samples'}"


def statistic(values: Sequence[float], metric: MetricName) -> float | None:
    """The metric's statistic of some samples."""
    if not values:
        return None
    if metric.percentile is None:
        return statistics.fmean(values)
    return percentile(values, metric.percentile)


def statistic_of(found: Measurement | None, metric: MetricName) -> float | None:
    """The metric of one whole run."""
    return statistic([v for v in found.samples if v is not None], metric) if found else None


def blocks(found: Measurement, metric: MetricName) -> list[float]:
    """The metric in 5 to 20 stretches of consecutive samples; fewer samples stay single."""
    known = [v for v in found.samples if v is not None]
    if not metric.lower_is_better:
        return known  # Already one value per stretch of time.
    if len(known) < LEAST_SAMPLES:
        return known
    count = min(MOST_BLOCKS, max(LEAST_SAMPLES, len(known) // REQUESTS_PER_BLOCK))
    edges = [round(i * len(known) / count) for i in range(count + 1)]
    parts = [known[a:b] for a, b in itertools.pairwise(edges)]
    return [v for part in parts if (v := statistic(part, metric)) is not None]
