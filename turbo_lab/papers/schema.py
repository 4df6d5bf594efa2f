"""The shape of a paper record (``data/papers/*.yaml``): the sources' template, made checkable.

What is not known is null, never left out. Each field has a status: ``reported`` (read in the
listed sources), ``confirmed`` (stated by the venue or the authors themselves), ``artifact`` (read
from published code or data, not from the paper), ``secondary`` (read where somebody quotes it),
``memory`` (not looked up), ``measured`` (by us) or ``unknown``. ``status`` lists the exceptions;
the rest follows from the value: null is unknown, anything else is reported.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Status = Literal[
    "confirmed", "reported", "artifact", "secondary", "memory", "measured", "unknown"
]  # fmt: skip
Resource = Literal["compute", "memory", "scheduling", "network"]
Stage = Literal["prefill", "decode", "cross_stage"]
Deployment = Literal["single_node", "distributed", "both"]
Coupling = Literal["low", "medium", "high"]
Layer = Literal["compute", "model_parameter", "runtime", "system_and_network"]
Changed = Literal["precision", "batch", "logging", "hardware", "model"]
Against = Literal["mainstream", "naive", "itself", "bound", "none"]
Counted = Literal["all", "survivors"]
Upkeep = Literal["low", "medium", "high"]


class Part(BaseModel):
    """Base of all parts: frozen, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


class Axes(Part):
    """The four questions to ask of a new paper."""

    resource: tuple[Resource, ...] = Field(min_length=1)
    stage: Stage
    deployment: Deployment
    hardware_coupling: Coupling


class Setting(Part):
    """Where the experiments ran. Null: not stated in what was read."""

    models: str | None
    gpus: str | None
    network: str | None
    dataset: str | None
    baselines: str | None


class Conditions(Part):
    """True where the sources state this condition of the numbers, False where they do not."""

    precision: bool
    input: bool
    output: bool
    concurrency: bool
    framework: bool
    gpu: bool


class Claim(Part):
    """One number with what it holds for.

    ``changed``: what differs between the arms beside the method. ``against``: the kind of
    baseline. ``counted``: whether failed or refused requests are in the percentiles. ``simulated``
    says that the number comes from a model. Null: the sources do not tell.
    """

    what: str = Field(min_length=3)
    number: str | None
    holds: str = Field(min_length=3)
    changed: tuple[Changed, ...] = ()
    against: Against | None = None
    counted: Counted | None = None
    simulated: bool = False
    status: Status | None = None


class Transfer(Part):
    """The sources' questions about one's own environment; null where there is nothing to say."""

    usable_now: str | None
    not_now: str | None
    testable_small: str | None
    needs_purchase: str | None


class Cost(Part):
    """What keeping it running costs."""

    level: Upkeep
    why: str = Field(min_length=3)


class PaperRecord(Part):
    """One page about one paper, in our own words."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str = Field(min_length=5)
    short_name: str
    venue: str | None
    year: int | None = Field(ge=2017, le=2100)
    arxiv: str | None = Field(pattern=r"^\d{4}\.\d{4,5}$")
    doi: str | None
    authors: str | None
    axes: Axes
    layers: tuple[Layer, ...] = Field(min_length=1)
    problem: str = Field(min_length=30)
    method: str = Field(min_length=30)
    setting: Setting
    conditions: Conditions
    holds: str = Field(min_length=30)
    claims: tuple[Claim, ...]
    lesson: str = Field(min_length=20)
    verify: str = Field(min_length=10)
    transfer: Transfer
    availability: str = Field(min_length=4)
    upkeep: Cost
    code: str | None
    needs_hardware: tuple[str, ...]
    version_drift: str | None
    notebooks: tuple[str, ...]
    confidence: Literal["seen", "mixed"]
    from_memory: tuple[str, ...]
    sources: tuple[str, ...] = Field(min_length=1)
    note: str | None
    status: dict[str, Status]

    @field_validator("status")
    @classmethod
    def _statuses_name_fields(cls, rows: dict[str, Status]) -> dict[str, Status]:
        allowed = set(field_names())
        unknown = sorted(set(rows) - allowed)
        if unknown:
            raise ValueError(f"unknown fields {unknown}; allowed: {', '.join(sorted(allowed))}")
        return rows

    @model_validator(mode="after")
    def _null_is_unknown(self) -> PaperRecord:
        for name, status in self.status.items():
            if (self.value_of(name) is None) != (status == "unknown"):
                raise ValueError(f"{name}: status {status!r} does not fit its value")
        if not any(self.transfer.model_dump().values()):
            raise ValueError("transfer: at least one of its questions needs an answer")
        return self

    def value_of(self, field: str) -> Any:
        """The value of a field such as ``doi`` or ``setting.network``; an empty list is None."""
        value: Any = self
        for part in field.split("."):
            value = getattr(value, part)
        return None if value in ((), "") else value

    def status_of(self, field: str) -> Status:
        """How well a field is known; see the module's text."""
        if field in self.status:
            return self.status[field]
        return "unknown" if self.value_of(field) is None else "reported"

    def by_status(self) -> dict[Status, tuple[str, ...]]:
        """Field names per status, for the table of what is known."""
        out: dict[Status, list[str]] = {}
        for name in field_names():
            out.setdefault(self.status_of(name), []).append(name)
        return {status: tuple(names) for status, names in out.items()}


STATUS_FIELDS = (
    "title", "venue", "year", "arxiv", "doi", "authors", "problem", "method", "claims", "lesson",
    "code",
)  # fmt: skip


def field_names() -> tuple[str, ...]:
    """Fields that carry a status of their own."""
    return (*STATUS_FIELDS, *(f"setting.{name}" for name in Setting.model_fields))
