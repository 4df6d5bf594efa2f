"""Records on disk: read, checked, found by id and by words."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from turbo_lab.core.errors import RecordError, UsageError, did_you_mean
from turbo_lab.core.host import repository_root
from turbo_lab.papers.schema import PaperRecord


def papers_folder() -> Path:
    """``data/papers`` of the checkout."""
    return repository_root() / "data" / "papers"


def read_record(path: str | Path) -> PaperRecord:
    """One record. Raises RecordError naming the file and the field that is wrong."""
    import yaml

    path = Path(path)
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        row = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecordError(f"{path.name} cannot be read: {error}") from error
    if not isinstance(row, dict):
        raise RecordError(f"{path.name} holds no record; make one with turbo-lab papers new ID")
    try:
        return PaperRecord.model_validate(row)
    except ValidationError as error:
        raise RecordError(_objections(path.name, error)) from error


def _objections(name: str, error: ValidationError) -> str:
    """All fields that are wrong, one to a line when there are several."""
    rows = []
    for one in error.errors(include_url=False, include_input=False):
        where = ".".join(str(part) for part in one["loc"]) or "record"
        rows.append(f"{where}: {one['msg']}")
    if len(rows) == 1:
        return f"{name}: {rows[0]}"
    return "\n  ".join([f"{name}: {len(rows)} things are wrong:", *rows])


def list_records(*, folder: str | Path | None = None) -> tuple[PaperRecord, ...]:
    """All records, by year and name. Raises RecordError for a bad or double one."""
    return _load(Path(folder) if folder else papers_folder())


def record(paper_id: str, *, folder: str | Path | None = None) -> PaperRecord:
    """The record of that id. Raises UsageError naming the nearest ids when there is none."""
    known = {one.id: one for one in list_records(folder=folder)}
    if paper_id not in known:
        raise UsageError(f"There is no paper {paper_id!r}.{did_you_mean(paper_id, [*known])}")
    return known[paper_id]


def select(
    records: Iterable[PaperRecord],
    *,
    resource: str | None = None,
    stage: str | None = None,
    deployment: str | None = None,
    coupling: str | None = None,
    layer: str | None = None,
    usable: str | None = None,
) -> tuple[PaperRecord, ...]:
    """Records that fit all given axes; ``usable`` names a question of transfer."""

    def fits(one: PaperRecord) -> bool:
        return (
            (resource is None or resource in one.axes.resource)
            and (stage is None or stage == one.axes.stage)
            and (deployment is None or deployment == one.axes.deployment)
            and (coupling is None or coupling == one.axes.hardware_coupling)
            and (layer is None or layer in one.layers)
            and (usable is None or getattr(one.transfer, usable) is not None)
        )

    return tuple(one for one in records if fits(one))


def search(words: str, *, folder: str | Path | None = None) -> tuple[PaperRecord, ...]:
    """Records that hold all words, those with a hit in title or name first."""
    wanted = words.lower().split()
    if not wanted:
        raise UsageError("Give at least one word to search for.")
    hits = []
    for one in list_records(folder=folder):
        text = " ".join(_texts(one.model_dump())).lower()
        if all(word in text for word in wanted):
            head = f"{one.title} {one.short_name}".lower()
            hits.append((not all(word in head for word in wanted), one))
    return tuple(one for _, one in sorted(hits, key=lambda pair: pair[0]))


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif value is not None:
        yield str(value)


@functools.cache
def _load(folder: Path) -> tuple[PaperRecord, ...]:
    found: dict[str, PaperRecord] = {}
    for path in sorted(folder.glob("*.yaml")):
        one = read_record(path)
        if one.id in found:
            raise RecordError(f"{path.name}: the paper {one.id!r} is already recorded.")
        if path.stem != one.id:
            raise RecordError(f"{path.name}: its id is {one.id!r}; name the file {one.id}.yaml")
        found[one.id] = one
    if not found:
        raise RecordError(f"{folder} holds no paper records (*.yaml).")
    return tuple(sorted(found.values(), key=lambda one: (one.year or 0, one.short_name.lower())))
