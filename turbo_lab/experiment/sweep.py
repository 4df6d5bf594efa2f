"""One variable, several values, a fresh server for each restart, in counterbalanced order."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import EngineError, RecordError, TurboLabError, UsageError
from turbo_lab.core.host import user_path
from turbo_lab.experiment.arms import Arm, load_arm
from turbo_lab.experiment.bench import Options, run_bench
from turbo_lab.experiment.compare import Comparison, compare
from turbo_lab.experiment.metric_names import metric_name
from turbo_lab.experiment.plan import BenchPlan, Scalar
from turbo_lab.experiment.run_folder import RECORD_NAME, REQUESTS_NAME
from turbo_lab.records import store
from turbo_lab.records.digest import digest_of

SWEEP_NAME, INTERRUPTED_NAME = "sweep.json", "record.interrupted.json"
CLIENT_KEYS = {
    "rate": "rate_req_s", "rate_req_s": "rate_req_s", "concurrency": "concurrency",
    "input_tokens": "input_tokens", "output_tokens": "output_tokens",
}  # fmt: skip
REPEAT = "repeat"  # This variable changes nothing: its values are the two sides of an A/A run.
DEFAULT_RESTARTS = 5


@dataclass(frozen=True)
class Launched:
    """A ready server."""

    base_url: str
    model: str


Launch = Callable[[Scalar], AbstractContextManager[Launched]]


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """What a sweep does. ``key`` is a setting of the server, or one of the client's own."""

    key: str
    values: tuple[Scalar, ...]
    plan: BenchPlan
    restarts: int = DEFAULT_RESTARTS
    metric: str = "ttft"
    study: str = "sweep"
    seed: int = 0
    follows: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a sweep that varies nothing."""
        if len(self.values) < 2 or len(set(map(str, self.values))) != len(self.values):
            raise UsageError(f"a sweep needs two different values or more, not {self.values!r}")
        if self.restarts < 1:
            raise UsageError(f"restarts is {self.restarts}, it must be at least 1")
        metric_name(self.metric)
        for value in self.values:
            _check_value(self.key, value)
            self.plan_for(value)  # Refuses what no run can have.

    @property
    def on_client(self) -> bool:
        """True when the variable belongs to the load, not to the server."""
        return self.key in CLIENT_KEYS

    def plan_for(self, value: Scalar) -> BenchPlan:
        """The run of one value."""
        if self.key == REPEAT:
            return self.plan
        if not self.on_client:
            return replace(self.plan, declared={**self.plan.declared, self.key: value})
        name = CLIENT_KEYS[self.key]
        other = {"rate_req_s": "concurrency", "concurrency": "rate_req_s"}.get(name)
        return replace(self.plan, **{name: value, **({other: None} if other else {})})

    def digest(self) -> str:
        """A sweep is continued only under an equal plan; ``follows`` matters when it is read."""
        facts = {**asdict(self), "plan": self.plan.to_dict()}
        return digest_of({name: value for name, value in facts.items() if name != "follows"})


@dataclass(frozen=True)
class Failure:
    """A run that could not be measured, and why."""

    value: Scalar
    restart: int
    reason: str


@dataclass(frozen=True)
class SweepResult:
    """Arms by value (those with a record), comparisons against the first, and what failed."""

    sweep: SweepPlan
    folder: Path
    arms: dict[str, Arm]
    comparisons: tuple[Comparison, ...] = ()
    failures: tuple[Failure, ...] = field(default=())


def _check_value(key: str, value: Scalar) -> None:
    """Settings of the load are numbers. Raises UsageError."""
    name = CLIENT_KEYS.get(key)
    kinds: tuple[type, ...] = (int, float) if name == "rate_req_s" else (int,)
    if name and (isinstance(value, bool) or not isinstance(value, kinds)):
        what = "numbers" if float in kinds else "whole numbers"
        raise UsageError(f"{key} takes {what}, not {value!r}: for example {key}=1,2,4")


def counterbalanced(values: Sequence[Scalar], *, rounds: int) -> list[tuple[int, Scalar]]:
    """``(round, value)`` in order: each round has every value once, every second one reversed and
    each pair of rounds rotated by one, so that a drift of the machine meets all values alike.
    """
    out: list[tuple[int, Scalar]] = []
    for number in range(rounds):
        shift = (number // 2) % len(values)
        order = [*values[shift:], *values[:shift]]
        out += [(number, v) for v in (order if number % 2 == 0 else reversed(order))]
    return out


def label(key: str, value: Scalar) -> str:
    """A folder name of one value."""
    text = "".join(c if c.isalnum() or c in "._-" else "-" for c in str(value))
    return f"{key}-{text}"


def run_sweep(
    sweep: SweepPlan,
    *,
    launch: Launch,
    out: str | Path,
    options: Options | None = None,
    store_floor: bool = True,
) -> SweepResult:
    """Measure all values and compare each with the first.

    A run that already has its record is not repeated, so a sweep that was stopped goes on where
    it was. A server that does not start leaves a failure and the sweep goes on.

    Raises:
        UsageError: the folder holds another sweep.
        RecordError: nothing can be written.
    """
    options = options or Options()
    folder = user_path(out)
    _claim(folder, sweep)
    failures: list[Failure] = []
    calibrated = False
    order = counterbalanced(sweep.values, rounds=sweep.restarts)
    for done, (number, value) in enumerate(order, start=1):
        home = folder / label(sweep.key, value) / f"restart-{number + 1}"
        if _measured(home):
            continue
        options.progress.say(f"[{done}/{len(order)}] {sweep.key}={value}, restart {number + 1}")
        once = replace(options, calibrate=options.calibrate and not calibrated)
        try:
            _one(sweep, value, home, launch, once)
            calibrated = True
        except (EngineError, UsageError) as error:
            failures.append(Failure(value, number + 1, str(error)))
            options.progress.say(f"unmeasured: {error}")
    return collect(sweep, folder, failures, store_floor=store_floor)


def _measured(home: Path) -> bool:
    """Whether this restart has its record, be it from a second attempt beside a broken one."""
    again = home.parent.glob(f"{home.name}-again-*/{RECORD_NAME}")
    return (home / RECORD_NAME).is_file() or any(again)


def _claim(folder: Path, sweep: SweepPlan) -> None:
    file = folder / SWEEP_NAME
    if file.is_file():
        try:
            digest = json.loads(file.read_text(encoding="utf-8"))["digest"]
        except (ValueError, KeyError, OSError) as error:
            raise RecordError(f"{file} is damaged: {error}. Give another --out") from error
        if digest != sweep.digest():
            raise UsageError(f"{folder} holds another sweep. Give another --out")
        return
    row = {
        "digest": sweep.digest(),
        "key": sweep.key,
        "values": list(sweep.values),
        "restarts": sweep.restarts,
        "metric": sweep.metric,
        "plan": sweep.plan.to_dict(),
    }
    store.write_text_atomically(json.dumps(row, indent=1) + "\n", file)


def _one(sweep: SweepPlan, value: Scalar, home: Path, launch: Launch, options: Options) -> None:
    """One start of a server and one run on it."""
    unfinished = (home / REQUESTS_NAME).exists()
    if unfinished:  # Its server is gone; half a run on another start would mix two.
        home = home.with_name(f"{home.name}-again-{len(list(home.parent.iterdir()))}")
    with launch(value) as server:
        plan = replace(sweep.plan_for(value), model=server.model)
        run = run_bench(
            server.base_url, plan=plan, out=home, options=replace(options, study=sweep.study)
        )
    if run.interrupted:  # Its record is not whole, so it must not count as this restart's.
        with contextlib.suppress(FileNotFoundError):  # The disk may have refused it.
            (home / RECORD_NAME).rename(home / INTERRUPTED_NAME)
        raise KeyboardInterrupt
    if run.problem is not None:
        raise EngineError(str(run.problem)) from run.problem


def collect(
    sweep: SweepPlan,
    folder: Path,
    failures: Sequence[Failure] = (),
    *,
    store_floor: bool = True,
) -> SweepResult:
    """Load what is there and compare each value with the first."""
    arms: dict[str, Arm] = {}
    for value in sweep.values:
        try:
            arms[str(value)] = load_arm(folder / label(sweep.key, value))
        except RecordError as error:  # A damaged record must not pass for a value not yet measured.
            if not any(failure.value == value for failure in failures):
                failures = [*failures, Failure(value, 0, str(error))]
    first = arms.get(str(sweep.values[0]))
    compared = []
    for value in sweep.values[1:]:
        other = arms.get(str(value))
        if first is None or other is None:
            continue
        key = None if sweep.key == REPEAT else CLIENT_KEYS.get(sweep.key, sweep.key)
        try:
            compared.append(
                compare(
                    first,
                    other,
                    declared=key,
                    metric=sweep.metric,
                    follows=sweep.follows,
                    store=store_floor,
                )
            )
        except TurboLabError as error:
            failures = [*failures, Failure(value, 0, str(error))]
    return SweepResult(sweep, folder, arms, tuple(compared), tuple(failures))


def to_dict(result: SweepResult) -> dict[str, Any]:
    """JSON form without the comparisons."""
    return {
        "key": result.sweep.key,
        "values": list(result.sweep.values),
        "metric": result.sweep.metric,
        "restarts": result.sweep.restarts,
        "folder": str(result.folder),
        "measured": {value: len(arm.records) for value, arm in result.arms.items()},
        "failures": [asdict(f) for f in result.failures],
    }
