"""Run a recorded benchmark again: is the new number inside what the record allows?"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from turbo_lab.core.errors import RecordError, UsageError
from turbo_lab.experiment import noise, settings
from turbo_lab.experiment.arms import (
    LEAST_SAMPLES,
    Arm,
    measured,
    observed,
    samples,
    statistic_of,
)
from turbo_lab.experiment.bench import Options, run_bench
from turbo_lab.experiment.gates import BLOCKING
from turbo_lab.experiment.metric_names import MetricName, metric_name
from turbo_lab.experiment.plan import BenchPlan
from turbo_lab.metrics.repeats import error_of_median
from turbo_lab.records.schema import Record

DEFAULT_METRICS = ("ttft", "tpot", "e2e", "throughput")
MARGIN = 1.96
Outcome = Literal["inside", "outside", "cannot tell", "no data"]


@dataclass(frozen=True)
class Check:
    """One metric: the recorded value, the interval around it, and the new value."""

    metric: str
    unit: str
    recorded: float | None
    interval: tuple[float, float] | None
    again: float | None
    outcome: Outcome


@dataclass(frozen=True)
class Verification:
    """All checks; ``reproduced`` is None when nothing could be told.

    ``reasons`` are blocking gates that the new run failed, ``warnings`` its other failed gates.
    """

    checks: tuple[Check, ...]
    changed: tuple[str, ...]
    reasons: tuple[str, ...]
    folder: str
    digest: str | None
    warnings: tuple[str, ...] = ()

    @property
    def reproduced(self) -> bool | None:
        """True when every checked metric lies inside, False when one lies outside."""
        seen = {c.outcome for c in self.checks}
        if "outside" in seen:
            return False
        return True if seen == {"inside"} else None


def interval(
    record: Record, name: MetricName, *, folder: Path | None = None
) -> tuple[float, float] | None:
    """Where a repeat is expected: the recorded value, give or take its own scatter and the noise
    floor of this machine (both relative, added in quadrature).
    """
    arm = Arm("record", (record,))
    found = samples(arm, name)
    value = statistic_of(measured(record, name), name)
    if value is None or len(found.values) < LEAST_SAMPLES or found.why_not:
        return None
    key = noise.floor_key(record, metric=str(name), unit=found.unit)
    floor = noise.noise_floor(key, arms=(found.values,), one_start=True, folder=folder).value
    half = (floor**2 + (MARGIN * error_of_median(found.values)) ** 2) ** 0.5
    return max(0.0, value * (1 - half)), value * (1 + half)


def chosen_metrics(record: Record, asked: Sequence[str]) -> list[MetricName]:
    """Those asked for, else the primary one and the defaults that the record has."""
    primary = record.variables.get("primary_metric")
    names = list(asked) or [*([str(primary)] if primary else []), *DEFAULT_METRICS]
    out = dict.fromkeys(metric_name(n) for n in names)
    return [n for n in out if asked or ((m := measured(record, n)) and m.value is not None)]


def verify_record(
    record: Record,
    *,
    base_url: str | None = None,
    metrics: Sequence[str] = (),
    out: Path | None = None,
    options: Options | None = None,
) -> Verification:
    """Run the recorded plan again, with other prompt words of the same lengths, and check.

    ``base_url``: default is the recorded address.

    Raises:
        UsageError: the record is no benchmark run, or a metric has no such name.
        EngineError: the server does not answer.
    """
    plan, url = recorded_plan(record), base_url or recorded_url(record)
    names = chosen_metrics(record, metrics)
    folder = out or Path(tempfile.mkdtemp(prefix="turbo-lab-verify-"))
    options = options or Options()
    run = run_bench(url, plan=plan, out=folder, options=replace(options, study=record.study))
    changed = settings.differences(settings.of_record(record), settings.of_record(run.record))
    failed = [gate for gate in run.record.gates if gate.passed is False]
    reasons = tuple(
        f"gate '{gate.name}' failed in the new run: {gate.detail}"
        for gate in failed
        if gate.name in BLOCKING
    )
    warnings = tuple(f"{g.name}: {g.detail}" for g in failed if g.name not in BLOCKING)
    checks = tuple(check(record, run.record, name, blocked=bool(reasons)) for name in names)
    return Verification(checks, tuple(changed), reasons, str(folder), record.digest, warnings)


def check(old: Record, new: Record, name: MetricName, *, blocked: bool = False) -> Check:
    """One metric of the new run against the old one's interval."""
    allowed = interval(old, name)
    before = statistic_of(measured(old, name), name)
    again = statistic_of(measured(new, name), name)
    outcome: Outcome = "cannot tell"
    if again is None:
        outcome = "no data"
    elif allowed is not None and not blocked:
        outcome = "inside" if allowed[0] <= again <= allowed[1] else "outside"
    return Check(str(name), name.unit, before, allowed, again, outcome)


def recorded_plan(record: Record) -> BenchPlan:
    """The plan behind a record, with fresh prompt words. Raises UsageError without one."""
    raw = observed(record, "plan")
    if not isinstance(raw, dict):
        again = f"turbo-lab run {record.study.removeprefix('nb')}"
        raise UsageError(
            f"the record of {record.study} holds no benchmark plan, so it cannot be run again "
            f"here; a notebook's record is made again by: {again}"
        )
    return replace(BenchPlan.from_dict(raw), prompt_salt=0)


def recorded_url(record: Record) -> str:
    """The address that was measured. Raises RecordError when it is not known."""
    target = observed(record, "target")
    url = target.get("base_url") if isinstance(target, dict) else None
    if not url:
        raise RecordError("the record does not tell which server it measured; give --url")
    return str(url)
