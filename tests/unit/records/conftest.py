"""A complete record, small enough to read."""

from __future__ import annotations

import pytest

from turbo_lab.records.environment import capture_environment
from turbo_lab.records.schema import EngineFacts, Gate, Measurement, Observation, Prediction, Record


def prediction(name: str, value: float, **rest: object) -> Prediction:
    fields = {"tolerance": 0.0, "band": None, "why": "", "reason": None}
    return Prediction.model_validate(
        {"name": name, "value": value, "unit": "s", "published_claim": None, "published": None}
        | fields
        | rest
    )


def measurement(name: str, *samples: float) -> Measurement:
    return Measurement(
        name=name, unit="s", definition=None, statistic="median", value=samples[0], reason=None,
        samples=samples, earlier=(),
    )  # fmt: skip


@pytest.fixture(scope="session")
def environment():
    return capture_environment()


@pytest.fixture
def make_record(environment):
    """Build a record of notebook 01 with one prediction met and one not; fields may be replaced."""

    def make(**change: object) -> Record:
        engine = EngineFacts(
            name="vllm", version="0.32.0", model="/home/ada/models/smol", model_sha256=None,
            command=("vllm", "serve", "--api-key", "abc123"), effective_config={"block_size": 128},
        )  # fmt: skip
        fields = {
            "schema_version": 1, "study": "nb01", "created_at": "2026-01-01T00:00:00Z",
            "mode": "cpu", "effort": "quick", "complete": True, "replayed_from": None,
            "variables": {}, "command": None, "workload_digest": None, "seed": 7,
            "environment": environment, "engines": (engine,),
            "predictions": (prediction("x", 1), prediction("y", 2)),
            "measurements": (measurement("x", 1), measurement("y", 3)),
            "observations": (Observation(name="log", data=["a line"], reason=None),),
            "gates": (Gate(name="warm", passed=True, detail=""),),
            "comparison": (), "predictions_met": 0, "predictions_total": 0, "digest": None,
        }  # fmt: skip
        return Record.model_validate(fields | change)

    return make
