"""Published statements that notebooks lean on: ``data/claims/*.yaml``, found by id."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from turbo_lab.core.errors import RecordError, UsageError, did_you_mean
from turbo_lab.core.host import repository_root
from turbo_lab.course.prose import Prose


class Claim(BaseModel):
    """One published statement in our own words, with everything its number depends on.

    ``number`` and ``unit`` are null for a statement without a number. ``confidence``: ``read`` in
    the source itself, ``computed`` by us from its inputs, ``secondary`` (read where it is quoted).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    statement: str = Field(min_length=20)
    number: int | Annotated[float, Field(allow_inf_nan=False)] | None
    unit: str | None
    conditions: str = Field(min_length=3)
    source: str = Field(min_length=3)
    url: str | None
    confidence: Literal["read", "computed", "secondary"]

    def _repr_markdown_(self) -> str:
        link = f"[{self.source}]({self.url})" if self.url else self.source
        return f"`{self.id}`: {self.statement} ({self.conditions}; {link}; {self.confidence})"


def claims_folder() -> Path:
    """``data/claims`` of the checkout."""
    return repository_root() / "data" / "claims"


def claim(claim_id: str, *, folder: str | Path | None = None) -> Claim:
    """The claim of that id. Raises UsageError naming the nearest ids when there is none."""
    known = _load(Path(folder) if folder else claims_folder())
    if claim_id not in known:
        raise UsageError(f"There is no claim {claim_id!r}.{did_you_mean(claim_id, [*known])}")
    return known[claim_id]


def list_claims(*, folder: str | Path | None = None) -> tuple[Claim, ...]:
    """All claims, sorted by id."""
    known = _load(Path(folder) if folder else claims_folder())
    return tuple(known[key] for key in sorted(known))


def references(*claim_ids: str, folder: str | Path | None = None) -> Prose:
    """A Markdown list of claims for the end of a notebook. Raises UsageError for an unknown id."""
    lines = [f"- {claim(each, folder=folder)._repr_markdown_()}" for each in claim_ids]
    return Prose("\n".join(lines))


@functools.cache
def _load(folder: Path) -> dict[str, Claim]:
    """Read all files once. Raises RecordError naming file and claim for a bad or double one."""
    found: dict[str, Claim] = {}
    for path in sorted(folder.glob("*.yaml")):
        for row in _rows(path):
            one = _checked(row, path=path)
            if one.id in found:
                raise RecordError(f"{path.name}: the claim {one.id!r} is already defined.")
            found[one.id] = one
    return found


def _rows(path: Path) -> list[object]:
    import yaml

    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise RecordError(f"{path.name} cannot be read: {error}") from error
    if not isinstance(rows, list):
        raise RecordError(f"{path.name} must hold a list of claims.")
    return rows


def _checked(row: object, *, path: Path) -> Claim:
    name = row.get("id", "without id") if isinstance(row, dict) else repr(row)
    try:
        one = Claim.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"{path.name}, claim {name}: {where}: {first['msg']}.") from error
    if (one.number is None) != (one.unit is None):
        raise RecordError(f"{path.name}, claim {name}: number and unit belong together.")
    return one
