"""Records on disk: written whole or not at all, read with every check, promoted without names."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from pydantic import ValidationError

from turbo_lab.core.errors import RecordError
from turbo_lab.core.host import repository_root
from turbo_lab.records.digest import seal, verify
from turbo_lab.records.redact import anonymise, redact
from turbo_lab.records.schema import SCHEMA_VERSION, Record

RICHEST_FIRST = ("full", "quick", "smoke")


def records_folder() -> Path:
    """Where the records that replay shows are kept: ``data/records`` of the checkout."""
    return repository_root() / "data" / "records"


def write(record: Record, path: str | Path) -> Path:
    """Redact, seal and write ``record`` atomically; a reader sees the old file or the new one.

    Raises RecordError when the folder cannot be written or the disk is full; nothing
    half-written stays behind.
    """
    clean = seal(Record.model_validate(redact(record.model_dump(mode="json"))))
    text = json.dumps(clean.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False)
    return write_text_atomically(text + "\n", Path(path))


def write_text_atomically(text: str, path: Path) -> Path:
    """Write beside the target, flush to disk, then rename over it.

    A device, a pipe or a link (``/dev/null``, ``/dev/stdout``) is written to, never replaced.
    """
    temporary: str | None = None
    asked = path
    try:
        path = path.resolve() if path.is_symlink() and path.is_file() else path
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_text(text, encoding="utf-8")
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        raise RecordError(
            f"{path} could not be written: {error.strerror or error}. Free space or choose "
            "another folder with TURBO_LAB_RUN_DIR."
        ) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
    return asked


def load(path: str | Path) -> Record:
    """Read and verify one record.

    Raises RecordError, naming the file, when it is missing, truncated, of another schema
    version, incomplete, or does not match its digest.
    """
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordError(f"There is no record at {path}.") from None
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise RecordError(f"{path} is not whole JSON (cut off or damaged): {error}.") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise RecordError(
            f"{path} has schema_version {version!r}; this version reads {SCHEMA_VERSION}."
        )
    try:
        return verify(Record.model_validate(data))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"{path} does not fit the schema: {where}: {first['msg']}.") from error
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from error


def list_records(folder: str | Path) -> tuple[Path, ...]:
    """All record files below ``folder``, sorted by path."""
    return tuple(sorted(Path(folder).rglob("*.json")))


def find(study: str, *, effort: str, folder: str | Path | None = None) -> Path:
    """The stored record of ``study``: that of ``effort`` if there is one, else the richest.

    Raises RecordError naming the missing path and how to make it.
    """
    home = Path(folder) if folder is not None else records_folder()
    wanted = home / study / f"{effort}.json"
    others = [home / study / f"{name}.json" for name in RICHEST_FIRST]
    for path in (wanted, *others):
        if path.is_file():
            return path
    number = study.removeprefix("nb")
    make, made = f"turbo-lab study {study}", f"runs/study-{study}-<time>/{study}.json"
    if number != study:
        make, made = f"turbo-lab run {number}", f"runs/<time>/records/{study}.json"
    raise RecordError(
        f"There are no recorded results for {study}: {_short(wanted)} does not exist. Make them "
        f"on a machine with vLLM: `{make} --mode cpu --effort {effort}`, then "
        f"`python -m turbo_lab.records promote {made}`."
    )


def promote(record_path: str | Path, *, study: str, folder: str | Path | None = None) -> Path:
    """Copy a live record to ``data/records/<study>/<effort>.json``, where replay finds it.

    The digest is checked first; host names, user names, absolute paths and secrets are removed;
    the copy is sealed again. Raises RecordError for a replayed, unfinished or invalid record.
    """
    record = load(record_path)
    _refuse_unfit(record, study=study, path=Path(record_path))
    clean = Record.model_validate(anonymise(record.model_dump(mode="json")))
    home = Path(folder) if folder is not None else records_folder()
    return write(clean, home / study / f"{record.effort}.json")


def _refuse_unfit(record: Record, *, study: str, path: Path) -> None:
    failed = [gate.name for gate in record.gates if gate.passed is False]
    problem = None
    if record.study != study:
        problem = f"it belongs to {record.study!r}, not to {study!r}"
    elif record.mode == "replay":
        problem = "it was replayed, nothing in it was measured in that run"
    elif not record.complete:
        problem = "the run ended before all predictions were measured"
    elif failed:
        problem = f"these validity gates failed: {', '.join(failed)}"
    if problem:
        raise RecordError(f"{path} cannot be promoted: {problem}.")


def _short(path: Path) -> str:
    """A path relative to the checkout where possible."""
    try:
        return str(path.relative_to(repository_root()))
    except ValueError:
        return str(path)
