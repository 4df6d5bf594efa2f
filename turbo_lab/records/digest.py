"""A digest over canonical JSON, so that a changed number cannot pass for a measured one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import RecordError
from turbo_lab.records.outcome import compare_rows, count_met
from turbo_lab.records.schema import Record

CHUNK_BYTES = 2**20


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, no spaces and no NaN: equal values give equal text.

    Raises RecordError for what JSON cannot hold.
    """
    try:
        return json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
    except (TypeError, ValueError) as error:
        raise RecordError(f"This cannot be stored as JSON: {error}.") from error


def digest_of(value: Any) -> str:
    """``sha256:<hex>`` over the canonical JSON of ``value`` (a workload, a record, a row)."""
    return "sha256:" + hashlib.sha256(canonical_json(value).encode()).hexdigest()


def file_sha256(path: str | Path) -> str:
    """``sha256:<hex>`` over a file's bytes. Raises RecordError when it cannot be read."""
    total = hashlib.sha256()
    try:
        with Path(path).open("rb") as file:
            while block := file.read(CHUNK_BYTES):
                total.update(block)
    except OSError as error:
        raise RecordError(f"No checksum of {path}: {error.strerror or error}.") from error
    return "sha256:" + total.hexdigest()


def folder_sha256(folder: str | Path, *, pattern: str = "*.safetensors") -> str | None:
    """One digest over all weight files of a model folder, names included; None without any."""
    files = sorted(Path(folder).glob(pattern))
    return digest_of({file.name: file_sha256(file) for file in files}) if files else None


def record_digest(record: Record) -> str:
    """The digest a record ought to carry: over all its fields but the digest itself."""
    return digest_of(record.model_dump(mode="json", exclude={"digest"}))


def seal(record: Record) -> Record:
    """The same record with its table, its counts and its digest computed anew."""
    rows = compare_rows(record.predictions, record.measurements)
    update = {
        "comparison": rows,
        "predictions_met": count_met(rows),
        "predictions_total": len(rows),
    }
    counted = record.model_copy(update=update)
    return counted.model_copy(update={"digest": record_digest(counted)})


def verify(record: Record) -> Record:
    """Return ``record`` if it is whole, else raise RecordError.

    Checked: the digest over all fields, and that the verdicts follow from the predictions and
    measurements (a verdict edited together with its digest is found too).
    """
    expected = record_digest(record)
    if record.digest != expected:
        raise RecordError(
            f"The record of {record.study} was changed after it was written: it carries digest "
            f"{record.digest}, its content gives {expected}. Measure again instead of editing it."
        )
    if record != seal(record):
        raise RecordError(
            f"The record of {record.study} holds verdicts that do not follow from its own "
            "predictions and measurements. Measure again instead of editing it."
        )
    return record
