"""The conditions of a lesson: machine, engines, declared variables, validity gates."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_lab.core.config import Dials
from turbo_lab.core.errors import UsageError
from turbo_lab.course.replay import Live, Recorded
from turbo_lab.course.sampling import attempt, json_copy
from turbo_lab.records.digest import digest_of, folder_sha256
from turbo_lab.records.environment import capture_environment, utc_now
from turbo_lab.records.schema import (
    SCHEMA_VERSION,
    EngineFacts,
    Environment,
    Gate,
    Measurement,
    Observation,
    Prediction,
    Record,
)

UNFINISHED = "the measurement did not finish"


@dataclass
class Notes:
    """Filled while a lesson runs. In replay ``environment`` is None: the record's own is shown."""

    environment: Environment | None
    created_at: str
    engines: list[EngineFacts] = field(default_factory=list)
    gates: dict[str, Gate] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    command: tuple[str, ...] | None = None
    workload_digest: str | None = None

    @classmethod
    def begin(cls, *, live: bool) -> Notes:
        """Empty notes; in a live mode the machine is looked at once, now."""
        return cls(environment=capture_environment() if live else None, created_at=utc_now())

    def declare(self, facts: dict[str, Any]) -> None:
        """``seed``, ``command`` and ``workload`` have places of their own; the rest are variables.

        Raises UsageError for what JSON cannot hold.
        """
        rest = dict(facts)
        if "seed" in rest:
            self.seed = int(rest.pop("seed"))
        if "command" in rest:
            command = rest.pop("command")
            if isinstance(command, str):
                raise UsageError("declare(command=...): give a list of words, not one string.")
            self.command = tuple(str(word) for word in command)
        if "workload" in rest:
            self.workload_digest = digest_of(json_copy(rest.pop("workload"), name="workload"))
        self.variables |= json_copy(rest, name="declare")

    def gate(self, name: str, passed: bool | None, *, detail: str) -> None:
        """Note (or renew) one gate."""
        state = None if passed is None else bool(passed)
        self.gates[name] = Gate(name=name, passed=state, detail=detail)

    def shown_gates(self, source: Recorded | Live) -> tuple[Gate, ...]:
        """The gates of the run that measured: the record's in replay, our own otherwise."""
        return source.record.gates if source.record else tuple(self.gates.values())

    def add_engine(self, server: Any) -> None:
        """Note what a server says of itself (``Engine.effective_config``); unknown is null."""
        config, reason = attempt(server.effective_config)
        config = json_copy(config, name="effective_config") if reason is None else {"error": reason}
        command = config.pop("command", None)
        model = config.get("model")
        facts = EngineFacts(
            name=str(config.get("engine") or type(server).__name__),
            version=config.get("version"),
            model=model,
            model_sha256=_model_sha256(model),
            command=tuple(map(str, command)) if command else None,
            effective_config=config,
        )
        if facts not in self.engines:
            self.engines.append(facts)

    def record(
        self,
        *,
        study: str,
        dials: Dials,
        source: Recorded | Live,
        predictions: tuple[Prediction, ...],
        measurements: tuple[Measurement, ...],
        observations: tuple[Observation, ...],
    ) -> Record:
        """The record of a live lesson, or of a replay (which keeps the conditions it replays)."""
        asked = {m.name for m in measurements if m.reason != UNFINISHED}
        own = {
            "schema_version": SCHEMA_VERSION,
            "study": study,
            "mode": dials.mode,
            "effort": dials.effort,
            "complete": all(p.name in asked for p in predictions),
            "predictions": predictions,
            "measurements": measurements,
            "observations": observations,
            "comparison": (),
            "predictions_met": 0,
            "predictions_total": 0,
            "digest": None,
        }
        return Record.model_validate(own | self._conditions(source))

    def _conditions(self, source: Recorded | Live) -> dict[str, Any]:
        if source.record is not None:
            fields = ("created_at", "variables", "command", "workload_digest", "seed",
                      "environment", "engines", "gates")  # fmt: skip
            stored = {name: getattr(source.record, name) for name in fields}
            return stored | {"replayed_from": source.record.digest}
        return {
            "created_at": self.created_at,
            "replayed_from": None,
            "variables": self.variables,
            "command": self.command,
            "workload_digest": self.workload_digest,
            "seed": self.seed,
            "environment": self.environment,
            "engines": tuple(self.engines),
            "gates": tuple(self.gates.values()),
        }


def _model_sha256(model: str | None) -> str | None:
    """Checksum over a local model's weight files; None for a hub id, whose files are elsewhere."""
    if not model or not Path(model).expanduser().is_dir():
        return None
    value, _ = attempt(lambda: folder_sha256(Path(model).expanduser()))
    return value
