"""Examinations as rows, marks and words to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.diagnose.causes import cause_named
from turbo_lab.diagnose.injection.fault import SOURCES, Examined
from turbo_lab.diagnose.interview import Walk, causes_of, walk

Mark = Literal["cause", "consequence", "nothing"]


def row_text(row: Examined) -> str:
    """One line about one examination."""
    if row.reason:
        return f"{row.fault}: not injected here: {row.reason}"
    told = ", ".join(f"{name}: {' '.join(found)}" for name, found in row.causes.items() if found)
    return f"{row.fault} ({'on' if row.on else 'off'}): {told or 'no finding'}"


def table_rows(rows: Sequence[Examined]) -> list[dict[str, Any]]:
    """Rows to show: the fault, what each source named, and the verdict."""
    return [
        {
            "fault": row.fault,
            "expected": ", ".join(row.expected) if row.on else "nothing",
            **{name: ", ".join(row.causes.get(name, ())) for name in SOURCES},
            "verdict": _verdict(row) + "".join(f"; wrong: {cause}" for cause in sorted(row.wrong)),
        }
        for row in rows
    ]


def _verdict(row: Examined) -> str:
    if row.reason:
        return "not injected"
    if not row.on:
        return "false alarm" if row.wrong else "quiet"
    return "missed" if row.missed else "named"


def marks(rows: Sequence[Examined]) -> dict[str, dict[str, Mark]]:
    """Fault to source to what that source alone named; faults that were put in only."""
    return {
        row.fault: {source: _mark(row, source) for source in SOURCES}
        for row in rows
        if row.on and not row.reason
    }


def _mark(row: Examined, source: str) -> Mark:
    if row.seen_by(source):
        return "cause"
    return "consequence" if row.causes.get(source) else "nothing"


def number_of(rows: Sequence[Examined], fault: str, name: str, *, on: bool = True) -> float:
    """One number of one examination. Raises UnmeasuredError where there is none."""
    for row in rows:
        if row.fault == fault and row.on == on:
            value = row.numbers.get(name)
            if value is not None:
                return value
            raise UnmeasuredError(row.reason or f"{fault} has no {name}")
    raise UnmeasuredError(f"the fault {fault!r} was not injected in this run")


def explain(row: Examined) -> str:
    """The finding about an expected cause in full: proof, next probe, fix."""
    for proof in row.proofs:
        if proof["cause"] in row.expected:
            cause = cause_named(proof["cause"])
            return "\n".join([
                f"{cause.cause}: {cause.means}",
                f"  evidence ({proof['source']}): {proof['evidence']}",
                f"  next probe: {cause.next_probe}",
                f"  fix: {cause.fix}",
            ])  # fmt: skip
    return f"{row.fault}: no finding"


def interviewed(row: Examined, *, symptom: str) -> Walk:
    """The guided interview, answered with what the doctor named of this fault."""
    return walk(symptom, says_yes=lambda step: any(c.cause in row.right for c in causes_of(step)))


def by_source(foretold: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Fault to the source that was foretold to name it."""
    return {fault: source for source, faults in foretold.items() for fault in faults}
