"""Read a foreign result file and make a record of it."""

from __future__ import annotations

import contextlib
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import RecordError, UsageError, did_you_mean
from turbo_lab.experiment.importers import aiperf, guidellm, vllm_bench
from turbo_lab.experiment.importers.foreign import Foreign
from turbo_lab.metrics.conventions import convention
from turbo_lab.records.digest import file_sha256, seal
from turbo_lab.records.environment import utc_now
from turbo_lab.records.schema import (
    SCHEMA_VERSION,
    EngineFacts,
    Environment,
    Gate,
    Measurement,
    Observation,
    Record,
)

UNKNOWN = "unknown"


def readers() -> dict[str, Callable[[Any], Foreign]]:
    """Tools by the name that ``--from`` takes."""
    return {"vllm": vllm_bench.read, "guidellm": guidellm.read, "aiperf": aiperf.read}


def import_file(path: str | Path, *, tool: str) -> Record:
    """The record of one foreign result file.

    Raises:
        UsageError: an unknown tool.
        RecordError: the file is missing, no JSON, or not a result of that tool.
    """
    known = readers()
    if tool not in known:
        raise UsageError(f"--from is {tool!r}.{did_you_mean(tool, list(known))}")
    try:
        found = known[tool](_parse(Path(path)))
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise RecordError(f"{path} is not a whole {tool} result: {error!r}") from error
    return _record(found, tool, Path(path))


def _parse(path: Path) -> Any:
    """A JSON document, or JSON lines as a list (a cut-off last line is left out)."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RecordError("is no text file") from error
    try:
        return json.loads(text)
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2:
            raise RecordError(f"is no JSON: {error}") from error
    rows = []
    for line in lines[:-1]:
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise RecordError(f"is neither JSON nor JSON lines: {error}") from error
    with contextlib.suppress(ValueError):  # The tool was killed while it wrote this line.
        rows.append(json.loads(lines[-1]))
    return rows


def _record(found: Foreign, tool: str, path: Path) -> Record:
    return seal(
        Record(
            schema_version=SCHEMA_VERSION,
            study=f"import-{tool}",
            created_at=utc_now(),
            mode="cpu",
            effort="quick",
            complete=True,
            replayed_from=None,
            variables={"client": found.convention, **found.settings},
            command=None,
            workload_digest=None,
            seed=None,
            environment=_unknown_environment(),
            engines=(
                EngineFacts(name=UNKNOWN, version=None, model=found.model, model_sha256=None,
                            command=None, effective_config=None),
            ),
            predictions=(),
            measurements=_measurements(found),
            observations=_observations(found, path),
            gates=_gates(found),
            comparison=(),
            predictions_met=0,
            predictions_total=0,
            digest=None,
        )
    )  # fmt: skip


def _unknown_environment() -> Environment:
    """The file does not tell on what it was measured; this machine has nothing to do with it."""
    return Environment(
        python=UNKNOWN, system=UNKNOWN, architecture=UNKNOWN, cpu=UNKNOWN, cpu_flags=(), cores=0,
        memory_bytes=None, gpus=(), packages={}, threads={}, git_commit=None, git_dirty=None,
    )  # fmt: skip


def definition(found: Foreign, name: str) -> str:
    """The tool's own definition: it names the tool, so that no other client's metric equals it."""
    rule_set = convention(found.convention)
    rules = {rule.name: rule.definition for rule in rule_set.rules}
    return f"{rule_set.name}: {rules.get(name, 'as the tool reports it')}"


def _measurements(found: Foreign) -> tuple[Measurement, ...]:
    out = []
    for name in {**found.summary, **found.samples}:
        samples = tuple(found.samples.get(name, ()))
        stats = found.summary.get(name, {})
        value = statistics.median(samples) if samples else stats.get("median", stats.get("value"))
        rate = name in ("output_rate_tok_s", "request_rate_req_s", "goodput_req_s")
        unit = "s" if not rate else "tok/s" if name == "output_rate_tok_s" else "req/s"
        nothing = found.succeeded == 0
        out.append(
            Measurement(
                name=name, unit=unit, definition=definition(found, name), statistic="median",
                value=None if nothing else value,
                reason="no data: no request succeeded" if nothing
                else None if value is not None else "the file gives no median",
                samples=() if nothing else samples or ((value,) if value is not None else ()),
                earlier=(),
            )
        )  # fmt: skip
    return tuple(out)


def _observations(found: Foreign, path: Path) -> tuple[Observation, ...]:
    rows = {
        "imported": {"file": path.name, "sha256": file_sha256(path), "tool": found.convention,
                     "version": found.version},
        "summary": {"attempted": _attempted(found), "succeeded": found.succeeded,
                    "failures": dict(found.failures),
                    "verdict": "no data" if found.succeeded == 0 else "ok"},
        "statistics": {name: dict(stats) for name, stats in found.summary.items()},
    }  # fmt: skip
    return tuple(Observation(name=n, data=d, reason=None) for n, d in rows.items())


def _attempted(found: Foreign) -> int | None:
    if found.succeeded is None or found.failed is None:
        return None
    return found.succeeded + found.failed


def _gates(found: Foreign) -> tuple[Gate, ...]:
    known = found.failed is not None
    detail = f"{found.failed} requests failed" if known else "the file does not tell"
    if found.failures:
        detail += ": " + "; ".join(f"{n} x {why}" for why, n in found.failures.items())
    return (Gate(name="failures", passed=found.failed == 0 if known else None, detail=detail),)
