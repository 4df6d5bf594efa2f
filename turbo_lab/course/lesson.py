"""Predict, measure, compare: the object every notebook works with.

A prediction is stored before its measurement may be asked for, and cannot be changed after. In
replay no measuring function is called: the stored value is shown, labelled as recorded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turbo_lab.core.config import Dials, resolve_dials
from turbo_lab.core.errors import RecordError, UnmeasuredError, UsageError, did_you_mean
from turbo_lab.course.display import Absent, Locked, Measured
from turbo_lab.course.display import present_cell as cell_number
from turbo_lab.course.notes import UNFINISHED, Notes
from turbo_lab.course.predictions import check_name, differ, make_prediction, stated
from turbo_lab.course.prose import Prose, render
from turbo_lab.course.replay import Live, Recorded, announce, open_source, output_path
from turbo_lab.course.sampling import attempt
from turbo_lab.course.table import ComparisonTable
from turbo_lab.records import store
from turbo_lab.records.outcome import compare_rows
from turbo_lab.records.schema import Measurement, Observation, Prediction, Record, Statistic


def start_lesson(
    notebook: str, *, mode: str = "auto", effort: str = "quick", records: str | Path | None = None
) -> Lesson:
    """Begin a notebook afresh and print where its numbers will come from.

    Args:
        notebook: Two digits, ``"01"``.
        mode: ``auto``, ``replay``, ``cpu`` or ``gpu``; ``TURBO_LAB_MODE`` overrides it.
        effort: ``smoke``, ``quick`` or ``full``; ``TURBO_LAB_EFFORT`` overrides it.
        records: Folder of the stored records (default ``data/records``).

    Raises:
        UsageError: An unknown mode or effort, or a mode this machine cannot run.
        RecordError: Replay without a stored record; the message says how to make one.
    """
    if not re.fullmatch(r"\d\d", notebook):
        raise UsageError(f"notebook is {notebook!r}; two digits are wanted, for example '01'.")
    dials = resolve_dials(mode, effort)
    source = open_source(f"nb{notebook}", dials, folder=records)
    lesson = Lesson(notebook, dials=dials, source=source)
    print(announce(notebook, dials, source=source, environment=lesson.notes.environment))
    return lesson


class Lesson:
    """One pass through one notebook. Made by ``start_lesson``.

    Attributes:
        notebook: Two digits.
        dials: Mode, effort and why.
        live: True when numbers are measured now.
        path: Where the record is written; None for a replay by hand.
    """

    def __init__(self, notebook: str, *, dials: Dials, source: Recorded | Live) -> None:
        self.notebook, self.dials, self.live = notebook, dials, dials.live
        self.study = f"nb{notebook}"
        self.source = source
        self.notes = Notes.begin(live=self.live)
        self.path = output_path(self.study, live=self.live)
        self._predictions: dict[str, Prediction] = {}
        self._measured: dict[str, Measurement] = {}
        self._observed: dict[str, Observation] = {}

    def predict(
        self,
        name: str,
        value: float | Callable[[], float],
        *,
        unit: str,
        tolerance: float | None = None,
        band: tuple[float | None, float | None] | None = None,
        why: str = "",
        published: str | None = None,
    ) -> Locked:
        """Store a prediction. It may be changed until its measurement is asked for.

        Args:
            name: Lower-case word, the name of the measurement to come.
            value: The number, or a function that computes it from earlier ones; where one of
                these is unmeasured (None, UnmeasuredError), the reason is stored instead.
            unit: Unit of both numbers.
            tolerance: Relative to the predicted value; 0.0 asks for equality.
            band: Absolute range instead of a tolerance; None leaves an end open.
            why: The reasoning in one line.
            published: Id of a claim whose number is shown beside ours.

        Raises:
            UsageError: Neither or both criteria, a bad value, or a change after measuring.
        """
        prediction = make_prediction(
            name, value, unit=unit, tolerance=tolerance, band=band, why=why, published=published
        )
        former = self._predictions.get(name)
        if name in self._measured and former is not None and differ(former, prediction):
            raise UsageError(
                f"The prediction of {name!r} is locked: {stated(former)} was stored before its "
                "measurement was asked for. Keep it and explain the difference, or run the "
                "notebook again from start_lesson."
            )
        self._predictions[name] = prediction
        line = f"predicted {name}: {stated(prediction)}"
        print(line)
        return Locked(name=name, value=prediction.value, unit=unit, line=line, cell=cell_number())

    def measure(
        self,
        name: str,
        fn: Callable[[], Any],
        *,
        unit: str,
        definition: str | None = None,
        statistic: Statistic = "median",
    ) -> Measured:
        """Measure what was predicted, or replay it.

        ``fn`` may return a number, a list of samples, a Metric or Quantity, or a mapping with
        ``value`` or ``samples``; it is not called in replay. If it raises UnmeasuredError or the
        engine fails, the result is ``unmeasured: reason`` and stays without a number.

        Raises UsageError when nothing was predicted under this name, or in another unit.
        """
        prediction = self._predictions.get(name)
        if prediction is None:
            hint = did_you_mean(name, [*self._predictions]) if self._predictions else ""
            raise UsageError(
                f"{name!r} has no prediction yet. First write down what you expect: "
                f"lab.predict({name!r}, value, unit={unit!r}, tolerance=0.1, why='...'), "
                f"then measure.{hint}"
            )
        if prediction.unit != unit:
            raise UsageError(f"{name!r} was predicted in {prediction.unit!r}, not in {unit!r}.")
        former = self._measured.get(name)
        earlier = (*former.earlier, former.value) if former else ()
        blank = Measurement(
            name=name, unit=unit, definition=definition, statistic=statistic, value=None,
            reason=UNFINISHED, samples=(), earlier=earlier,
        )  # fmt: skip
        self._measured[name] = blank  # from here on the prediction is locked, whatever fn does
        self._measured[name], beside = self.source.measure(blank, fn)
        if beside is not None:
            self._observed[name] = beside
        self._keep()
        shown = Measured.of(self._measured[name], label="" if self.live else self.source.label)
        print(shown.line)
        return shown

    def observe(self, name: str, fn: Callable[[], Any]) -> Any:
        """Supporting data without a prediction (times, log lines, timelines): stored and replayed.

        Returns plain data, equal in live and in replay, or None after printing the reason.
        """
        check_name(name)
        found = self.source.observe(name, fn)
        self._observed[name] = found
        self._keep()
        if found.reason:
            print(f"{name} is unmeasured: {found.reason}")
        elif not self.live:
            print(f"{name}: {self.source.label}")
        return found.data

    def engine(self, start: Callable[[], Any]) -> Any:
        """Start (or borrow) a server in a live mode and note its configuration in the record.

        Returns the server. In replay, or when it cannot start, returns a stand-in: a measuring
        function that uses it ends as ``unmeasured: reason``.
        """
        if not self.live:
            return Absent("no engine runs in replay mode")
        server, reason = attempt(start)
        if reason is not None:
            print(f"no engine: {reason}")
            return Absent(reason)
        self.notes.add_engine(server)
        return server

    def declare(self, **facts: Any) -> None:
        """Note conditions in the record: ``seed=``, ``command=[...]``, ``workload=`` (stored as a
        digest), ``model=`` (a folder, stored as name and checksum), and any other variable.
        """
        self.notes.declare(facts)

    def gate(self, name: str, passed: bool | None, *, detail: str = "") -> None:
        """Note a condition without which the numbers mean nothing; a failed one is shown."""
        self.notes.gate(name, passed, detail=detail)

    def number(self, name: str) -> float:
        """A measured value for further arithmetic. Raises UnmeasuredError where there is none."""
        measurement = self._measured.get(name)
        if measurement is None:
            raise UsageError(
                f"{name!r} is not measured yet.{did_you_mean(name, [*self._measured])}"
            )
        if measurement.value is None:
            raise UnmeasuredError(f"{name} is unmeasured: {measurement.reason}")
        return measurement.value

    def met(self, name: str) -> bool | None:
        """Whether a prediction came true; None when it is unmeasured."""
        row = self._table((name,))[name]
        return None if row.verdict == "unmeasured" else row.verdict == "met"

    def compare(self, *names: str) -> ComparisonTable:
        """The table of predicted, measured and published numbers; writes the record.

        With names, the table shows only these; the record always holds all.
        """
        table = self._table(names)
        self._keep(final=True)
        return table

    def _table(self, names: tuple[str, ...]) -> ComparisonTable:
        for name in names:
            if name not in self._predictions:
                hint = did_you_mean(name, [*self._predictions])
                raise UsageError(f"Nothing was predicted under {name!r}.{hint}")
        rows = compare_rows(self._predictions.values(), self._measured.values())
        note = f"Measured numbers: {self.source.label}."
        gates = self.notes.shown_gates(self.source)
        shown = tuple(r for r in rows if not names or r.name in names)
        changed = self.source.changed(self._predictions[row.name] for row in shown)
        return ComparisonTable(rows=shown, note=note, gates=gates, changed=changed)

    def text(
        self, template: str, *, if_met: str | None = None, otherwise: str = "", **values: Any
    ) -> Prose:
        """A sentence with its numbers filled in from the measurements, as Markdown.

        ``{ttft_s:.3f}`` is a measured value, ``{predicted[ttft_s]}`` a predicted one,
        ``{lines[0]}`` a part of an observation; ``values`` adds numbers, or functions computing
        them. With ``if_met``, ``template`` is used only where that prediction came true, else
        ``otherwise``; an unmeasured one says so.
        """
        if if_met is not None:
            outcome = self.met(if_met)
            if outcome is None:
                reason = self._table((if_met,))[if_met].reason
                return Prose(f"{if_met} is unmeasured: {reason}")
            template = template if outcome else otherwise
        return render(template, self._names() | values)

    def _names(self) -> dict[str, Any]:
        measured = {m.name: Measured.of(m) for m in self._measured.values()}
        observed = {o.name: o.data for o in self._observed.values()}
        predicted = {p.name: p.value for p in self._predictions.values()}
        return {**observed, **measured, "predicted": predicted}

    def save(self) -> Path | None:
        """Write the record now. Returns its path; None for a replay by hand.

        Raises RecordError when it cannot be written.
        """
        return store.write(self.record(), self.path) if self.path else None

    def record(self) -> Record:
        """The record as it stands."""
        return self.notes.record(
            study=self.study, dials=self.dials, source=self.source,
            predictions=tuple(self._predictions.values()),
            measurements=tuple(self._measured.values()),
            observations=tuple(self._observed.values()),
        )  # fmt: skip

    def _keep(self, *, final: bool = False) -> None:
        """Save after every step, so that a killed kernel loses nothing; a full disk is told."""
        if not self.live and not final:
            return
        try:
            path = self.save()
        except RecordError as error:
            print(f"The record was not saved: {error}")
            return
        if final and self.live and path is not None:
            print(f"record: {path}")
