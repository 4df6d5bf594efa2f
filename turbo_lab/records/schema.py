"""The record's shape. An unknown value is null; no field may be left out.

Fields have no defaults on purpose: a reader of the JSON can tell "not known" from "not thought
of". Numbers are finite (NaN and infinity are refused), tuples keep a record immutable.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

SCHEMA_VERSION = 1

Number = int | Annotated[float, Field(allow_inf_nan=False)]
Verdict = Literal["met", "not met", "unmeasured"]
Statistic = Literal["median", "mean", "min", "max"]


class Row(BaseModel):
    """Base of all parts: frozen, and unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class GpuFacts(Row):
    """One accelerator as its driver names it."""

    name: str
    memory_bytes: int
    driver: str


class Environment(Row):
    """The machine and the software. It holds no host name and no user name."""

    python: str
    system: str
    architecture: str
    cpu: str
    cpu_flags: tuple[str, ...]
    cores: int
    memory_bytes: int | None
    gpus: tuple[GpuFacts, ...]
    packages: dict[str, str | None]
    threads: dict[str, str | None]
    git_commit: str | None
    git_dirty: bool | None


class EngineFacts(Row):
    """One server that took part. ``effective_config`` is what it reported, not what was asked."""

    name: str
    version: str | None
    model: str | None
    model_sha256: str | None
    command: tuple[str, ...] | None
    effective_config: JsonValue


class Prediction(Row):
    """A number stated before its measurement.

    ``tolerance`` is relative to the predicted value; ``band`` is an absolute range, an open end
    being null. Exactly one of them is set. ``value`` is null only with a ``reason`` (it depended
    on something that was not measured).
    """

    name: str
    value: Number | None
    unit: str
    tolerance: Number | None = Field(ge=0)
    band: tuple[Number | None, Number | None] | None
    why: str
    reason: str | None
    published_claim: str | None
    published: Number | None

    @model_validator(mode="after")
    def _one_criterion(self) -> Prediction:
        if (self.tolerance is None) == (self.band is None):
            raise ValueError(f"{self.name}: exactly one of tolerance and band must be set")
        if (self.value is None) == (self.reason is None):
            raise ValueError(f"{self.name}: a value or the reason for its absence, not both")
        return self


class Measurement(Row):
    """All samples of one metric and the value that stands for them.

    ``earlier`` holds the values of former tries in the same session (a cell run again), so that
    measuring until the prediction fits stays visible.
    """

    name: str
    unit: str
    definition: str | None
    statistic: Statistic
    value: Number | None
    reason: str | None
    samples: tuple[Number | None, ...]
    earlier: tuple[Number | None, ...]

    @model_validator(mode="after")
    def _value_or_reason(self) -> Measurement:
        if (self.value is None) == (self.reason is None):
            raise ValueError(f"{self.name}: a value or the reason for its absence, not both")
        return self


class Observation(Row):
    """Supporting data without a prediction: chunk times, log lines, a whole timeline."""

    name: str
    data: JsonValue
    reason: str | None


class Gate(Row):
    """A condition without which the numbers mean nothing (no failed request, engine was warm)."""

    name: str
    passed: bool | None
    detail: str


class ComparisonRow(Row):
    """One line of the predicted-measured-published table."""

    name: str
    unit: str
    predicted: Number | None
    measured: Number | None
    published: Number | None
    published_claim: str | None
    ratio: Number | None
    tolerance: Number | None
    band: tuple[Number | None, Number | None] | None
    verdict: Verdict
    reason: str | None
    n: int


class Record(Row):
    """Everything one run of a notebook or a study leaves behind."""

    schema_version: Literal[1]
    study: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    created_at: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$")
    mode: Literal["replay", "cpu", "gpu"]
    effort: Literal["smoke", "quick", "full"]
    complete: bool
    replayed_from: str | None
    variables: dict[str, JsonValue]
    command: tuple[str, ...] | None
    workload_digest: str | None
    seed: int | None
    environment: Environment
    engines: tuple[EngineFacts, ...]
    predictions: tuple[Prediction, ...]
    measurements: tuple[Measurement, ...]
    observations: tuple[Observation, ...]
    gates: tuple[Gate, ...]
    comparison: tuple[ComparisonRow, ...]
    predictions_met: int
    predictions_total: int
    digest: str | None
