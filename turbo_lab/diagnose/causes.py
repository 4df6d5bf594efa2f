"""The one table of causes: ``data/faults/causes/*.yaml``, checked when it is read.

A message is a literal, or a literal that is looked for first (``find``) and a regular expression
for the same line (``match``). Both are compared with the line in lower case, so that one rule
holds for several versions and for shouted levels alike.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from turbo_lab.core.errors import RecordError, UsageError, did_you_mean
from turbo_lab.core.host import repository_root
from turbo_lab.diagnose.finding import Confidence, Finding

Phase = Literal["start", "serving"]

# Rows of the two sources' troubleshooting tables and lists, and what they are about.
ROWS = {
    "a1-memory-at-start": "memory overflows at start",
    "a2-first-request-slow": "the first request is slow",
    "a3-tpot-under-load": "time per token grows with concurrency",
    "a4-quality-after-kv-quantisation": "quality falls after KV cache quantisation",
    "a5-slower-with-speculation": "throughput falls with speculative decoding",
    "a6-communication-share": "communication takes a large share over several hosts",
    "a7-results-differ": "equal requests give different results",
    "b1-out-of-memory": "memory chain: out of memory",
    "b2-offload": "memory chain: moved to the host's memory, little used but slow",
    "b3-fragmentation": "memory chain: fragments",
    "b4-eviction": "memory chain: context evicted again and again",
    "b5-queue": "batch: requests pile up",
    "b6-timeout": "batch: one request hangs or times out",
    "b7-retries": "batch: retries submit the work twice",
    "b8-name-collision": "batch: two jobs write one file",
    "b9-mixed-logs": "batch: logs are mixed",
    "b10-network-card": "network: kind of card and reachability",
    "b11-bandwidth": "network: bandwidth of switch and links",
    "b12-mtu": "network: MTU",
    "b13-congestion": "network: congestion and flow control",
    "b14-input": "order: input (format, encoding, path, size)",
    "b15-environment": "order: environment (versions, rights, resources, ports, system)",
    "b16-parameters": "order: parameters (concurrency, batch, time-outs, paths)",
    "b17-code": "order: code (compatibility, limits)",
    "b18-stuck": "stuck without output",
}


class Message(BaseModel):
    """One wording of the program that points to the cause."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    find: str = Field(min_length=4)
    match: str | None = None
    but_not: str | None = None
    phase: Phase | None = None
    at_least: int = Field(default=1, ge=1)

    @field_validator("find")
    @classmethod
    def _lower(cls, text: str) -> str:
        if text != text.lower() or any(c.isdigit() for c in text):
            raise ValueError("must be lower case and without digits")
        return text

    @field_validator("match", "but_not")
    @classmethod
    def _compiles(cls, text: str | None) -> str | None:
        if text is not None:
            re.compile(text.encode())
        return text


class Cause(BaseModel):
    """One row of the table.

    ``symptom``: shown only when nothing deeper was found. ``family``: the name of its file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    cause: str = Field(pattern=r"^[a-z][a-z0-9_]+$")
    means: str = Field(min_length=20)
    rows: tuple[str, ...] = Field(min_length=1)
    confidence: Confidence
    next_probe: str = Field(min_length=10)
    fix: str = Field(min_length=10)
    symptom: bool = False
    family: str
    messages: tuple[Message, ...]

    @field_validator("messages", mode="before")
    @classmethod
    def _plain_is_find(cls, rows: Any) -> Any:
        return [{"find": row} if isinstance(row, str) else row for row in rows]

    @field_validator("rows")
    @classmethod
    def _known_rows(cls, rows: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [row for row in rows if row not in ROWS]
        if unknown:
            raise ValueError(f"unknown rows {unknown}; allowed: {', '.join(ROWS)}")
        return rows


def causes_folder() -> Path:
    """``data/faults/causes`` of the checkout."""
    return repository_root() / "data" / "faults" / "causes"


def list_causes() -> tuple[Cause, ...]:
    """The whole table, in the order of the files. Raises RecordError for a bad row."""
    return _rows_of_table()


def cause_named(name: str) -> Cause:
    """One row. Raises UsageError naming the nearest ids when there is none."""
    table = _table()
    if name not in table:
        raise UsageError(f"There is no cause {name!r}.{did_you_mean(name, [*table])}")
    return table[name]


def found(
    cause: str,
    *,
    evidence: str,
    where: str,
    source: str,
    count: int = 1,
    confidence: Confidence | None = None,
) -> Finding:
    """A finding with the table's words for ``cause``."""
    row = cause_named(cause)
    return Finding(
        cause=cause,
        confidence=confidence or row.confidence,
        evidence=evidence,
        next_probe=row.next_probe,
        fix=row.fix,
        means=row.means,
        where=where,
        count=count,
        source=source,
    )


@functools.cache
def _rows_of_table() -> tuple[Cause, ...]:
    return tuple(_table().values())


@functools.cache
def _table() -> dict[str, Cause]:
    table: dict[str, Cause] = {}
    for path in sorted(causes_folder().glob("*.yaml")):
        for row in _rows(path):
            one = _checked(row, path)
            if one.cause in table:
                raise RecordError(f"{path.name}: the cause {one.cause!r} stands twice.")
            table[one.cause] = one
    if not table:
        raise RecordError(f"{causes_folder()} holds no causes; the checkout is not complete.")
    return table


def _rows(path: Path) -> list[Any]:
    import yaml

    try:
        return yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, yaml.YAMLError) as error:
        raise RecordError(f"{path.name} cannot be read: {error}") from error


def _checked(row: Any, path: Path) -> Cause:
    name = row.get("cause") if isinstance(row, dict) else repr(row)
    try:
        return Cause.model_validate({**row, "family": path.stem})
    except (ValidationError, TypeError, re.error) as error:
        raise RecordError(f"{path.name}, cause {name}: {error}") from error
