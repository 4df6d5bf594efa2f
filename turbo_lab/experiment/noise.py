"""The noise floor: which difference a comparison must exceed on this machine in this study.

An A/A comparison (nothing differs) is stored; a later difference counts only beyond what A/A runs
have shown. Without one the floor is the scatter of restarts, or, where each side was started once,
an assumed floor that is said to be assumed. How far repeats scatter is computed in
``metrics.repeats`` alone; here it is remembered over days and turned into a floor.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.errors import RecordError
from turbo_lab.metrics.repeats import error_of_median
from turbo_lab.records.digest import digest_of
from turbo_lab.records.environment import utc_now
from turbo_lab.records.schema import Record
from turbo_lab.records.store import write_text_atomically

# Identical configurations have differed by 3 to 22 % between starts in public reports
# (e.g. 21.9 % in microsoft/orbit PR 295). An assumption to be replaced by an A/A run.
ASSUMED_FLOOR = 0.10
TRUSTED_RUNS = 5  # As many A/A runs of single starts until their largest difference is believed.
KEPT_RUNS = 20


@dataclass(frozen=True)
class NoiseFloor:
    """``value`` is relative (0.05 is 5 %); ``source`` says where it comes from."""

    value: float
    source: str
    runs: int


def floor_folder() -> Path:
    """Where this machine's A/A runs are kept."""
    return host.cache_folder() / "noise"


def floor_key(record: Record, *, metric: str, unit: str) -> str:
    """One name per machine, engine, study, load shape, metric and kind of sample."""
    environment = record.environment
    facts = {
        "cpu": environment.cpu,
        "cores": environment.cores,
        "gpus": [g.name for g in environment.gpus],
        "engine": record.engines[0].name if record.engines else None,
        "study": record.study,
        "workload": record.workload_digest,
        "metric": metric,
        "unit": unit,
    }
    return digest_of(facts).removeprefix("sha256:")[:24]


def read_runs(key: str, *, folder: Path | None = None) -> list[dict[str, Any]]:
    """Stored A/A runs of this key, oldest first; a damaged file counts as none."""
    path = (folder or floor_folder()) / f"{key}.json"
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["runs"]
        return [row for row in rows if _is_whole(row)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _is_whole(row: Any) -> bool:
    """An effect and both ends of its interval, as numbers."""
    if not isinstance(row, Mapping):
        return False
    ends = row.get("interval")
    found = [row.get("effect"), *(ends if isinstance(ends, list) else ())]
    return len(found) == 3 and all(isinstance(value, int | float) for value in found)


def store_run(
    key: str,
    *,
    effect: float,
    interval: tuple[float, float],
    digests: Sequence[str | None],
    facts: Mapping[str, Any],
    folder: Path | None = None,
) -> Path | None:
    """Keep one A/A run, the same pair only once. Returns the file; None where it cannot be kept."""
    pair = sorted(str(d) for d in digests)
    rows = [r for r in read_runs(key, folder=folder) if r.get("pair") != pair]
    rows.append({"at": utc_now(), "effect": effect, "interval": list(interval), "pair": pair})
    text = json.dumps({"facts": dict(facts), "runs": rows[-KEPT_RUNS:]}, indent=1)
    try:
        return write_text_atomically(text + "\n", (folder or floor_folder()) / f"{key}.json")
    except RecordError:
        return None


def noise_floor(
    key: str, *, arms: Sequence[Sequence[float]], one_start: bool, folder: Path | None = None
) -> NoiseFloor:
    """The floor for a comparison: from stored A/A runs, else from restarts, else assumed."""
    runs = read_runs(key, folder=folder)
    if runs:
        seen = max(abs(r["effect"]) for r in runs)
        half = statistics.median((r["interval"][1] - r["interval"][0]) / 2 for r in runs)
        source = f"{len(runs)} A/A comparisons stored on this machine"
        if one_start and len(runs) < TRUSTED_RUNS:
            source += f"; not below the assumed {ASSUMED_FLOOR:.0%} before there are {TRUSTED_RUNS}"
            return NoiseFloor(max(seen, half, ASSUMED_FLOOR), source, len(runs))
        return NoiseFloor(max(seen, half), source, len(runs))
    if one_start:
        return NoiseFloor(
            ASSUMED_FLOOR,
            "assumed: no A/A run is stored for this machine and study, and each side was "
            "started once",
            0,
        )
    value = max(error_of_median(values) for values in arms)
    return NoiseFloor(value, "scatter of the runs of each side; no A/A run is stored", 0)
