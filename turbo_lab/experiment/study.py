"""Named studies (``data/studies/*.toml``): a question, a variable, a workload per effort."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.config import Dials
from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.experiment import knees
from turbo_lab.experiment.arms import Arm, statistic_of
from turbo_lab.experiment.arms import measured as measured_in
from turbo_lab.experiment.launch import fresh_vllm
from turbo_lab.experiment.measured import measurement
from turbo_lab.experiment.metric_names import metric_name
from turbo_lab.experiment.plan import BenchPlan, Scalar
from turbo_lab.experiment.sweep import CLIENT_KEYS, REPEAT, Launch, SweepPlan, SweepResult
from turbo_lab.records.digest import canonical_json, seal
from turbo_lab.records.environment import utc_now
from turbo_lab.records.schema import SCHEMA_VERSION, Gate, Measurement, Observation, Record

EFFORTS = ("smoke", "quick", "full")


@dataclass(frozen=True)
class Study:
    """One study. ``server`` are fixed engine arguments; ``workload`` and ``restarts`` by effort.

    ``follows`` are settings that the engine itself derives from the varied one.
    """

    name: str
    question: str
    key: str
    values: tuple[Scalar, ...]
    metric: str
    server: Mapping[str, Any]
    workload: Mapping[str, Mapping[str, Any]]
    restarts: Mapping[str, int]
    follows: tuple[str, ...] = ()

    def sweep(self, effort: str) -> SweepPlan:
        """The sweep of one effort."""
        if effort not in EFFORTS:
            raise UsageError(f"effort is {effort!r}.{did_you_mean(effort, list(EFFORTS))}")
        work = {**self.workload.get("all", {}), **self.workload.get(effort, {})}
        plan = BenchPlan(model="lab", primary_metric=self.metric, **work)
        return SweepPlan(
            key=self.key, values=self.values, plan=plan, restarts=self.restarts[effort],
            metric=self.metric, study=self.name, follows=self.follows,
        )  # fmt: skip

    def launch(self, dials: Dials) -> Launch:
        """A fresh server for each run. A variable named ``repeat`` changes nothing: A/A."""
        plain = self.key in CLIENT_KEYS or self.key == REPEAT
        return fresh_vllm(dials, key=None if plain else self.key, **self.server)


def studies_folder() -> Path:
    """Where studies are described."""
    return host.repository_root() / "data" / "studies"


def study_names(folder: Path | None = None) -> list[str]:
    """All studies there are."""
    return sorted(path.stem for path in (folder or studies_folder()).glob("*.toml"))


def load_study(name: str, *, folder: Path | None = None) -> Study:
    """Read one study. Raises UsageError for an unknown name or a description that is not whole."""
    home = folder or studies_folder()
    if name not in study_names(home):
        raise UsageError(f"there is no study {name!r}.{did_you_mean(name, study_names(home))}")
    path = home / f"{name}.toml"
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        return Study(
            name=name, question=raw["question"], key=raw["key"], values=tuple(raw["values"]),
            metric=raw["metric"], server=raw.get("server", {}), workload=raw["workload"],
            restarts=raw["restarts"], follows=tuple(raw.get("follows", ())),
        )  # fmt: skip
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is not a whole study: {error!r}") from error


def study_record(study: Study, result: SweepResult, *, dials: Dials, effort: str) -> Record:
    """One record of the whole study: a measurement per value, its restarts as the samples.

    Raises UsageError when nothing was measured.
    """
    if not result.arms:
        raise UsageError(f"nothing was measured in {result.folder}")
    base = next(iter(result.arms.values())).records[0]
    per_value = tuple(_measurement(study, value, arm) for value, arm in result.arms.items())
    return seal(
        Record(
            schema_version=SCHEMA_VERSION,
            study=study.name,
            created_at=utc_now(),
            mode=dials.mode,
            effort=effort,  # type: ignore[arg-type]
            complete=len(result.arms) == len(study.values) and not result.failures,
            replayed_from=None,
            variables={**base.variables, study.key: list(study.values), "varied": study.key},
            command=("turbo-lab", "study", study.name, "--effort", effort),
            workload_digest=base.workload_digest,
            seed=base.seed,
            environment=base.environment,
            engines=tuple(arm.records[0].engines[0] for arm in result.arms.values()),
            predictions=(),
            measurements=per_value,
            observations=_observations(study, result),
            gates=_gates(result),
            comparison=(),
            predictions_met=0,
            predictions_total=0,
            digest=None,
        )
    )


def _measurement(study: Study, value: str, arm: Arm) -> Measurement:
    name = metric_name(study.metric)
    samples = [statistic_of(measured_in(r, name), name) for r in arm.records]
    found = measured_in(arm.records[0], name)
    text = f"{name} of each restart; {found.definition if found else ''}"
    return measurement(f"{name} at {study.key}={value}", name.unit, text, samples)


def _observations(study: Study, result: SweepResult) -> tuple[Observation, ...]:
    rows = [json.loads(canonical_json(asdict(c))) for c in result.comparisons]
    found = {
        "question": study.question,
        "comparisons": rows,
        "failures": [asdict(f) for f in result.failures],
        "load_points": [asdict(p) for p in knees.load_points(result)],
        "runs": {value: [r.digest for r in arm.records] for value, arm in result.arms.items()},
    }
    return tuple(Observation(name=n, data=d, reason=None) for n, d in found.items())


def _gates(result: SweepResult) -> tuple[Gate, ...]:
    """A gate per value: did every run on it pass its blocking gates."""
    from turbo_lab.experiment.gates import BLOCKING

    out = []
    for value, arm in result.arms.items():
        bad = [g for g in arm.gates() if g.passed is False and g.name in BLOCKING]
        detail = "; ".join(f"{g.name}: {g.detail}" for g in bad) or f"{len(arm.records)} runs"
        out.append(Gate(name=f"runs at {value}", passed=not bad, detail=detail))
    return tuple(out)
