"""The cheapest configuration that meets an SLO, by simulating each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import UsageError
from turbo_lab.metrics.streamed import StreamedMetrics
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.pools import make_router
from turbo_lab.sim.simulate import simulate
from turbo_lab.sim.tasks import keys_of, run_tasks
from turbo_lab.workload.trace_reader import TraceFile
from turbo_lab.workload.trace_request import TraceRequest

LIMITS = ("max_sequences", "max_batched_tokens", "blocks")
ROW_VERSION = 2  # Of what a row holds; a journal of other rows is refused.
OPTIONS = ("replicas", "router", "policy", *LIMITS)


@dataclass(frozen=True)
class SearchTask:
    """One configuration on one trace; travels to the process that simulates it."""

    trace: TraceFile
    speed: float
    engine: Engine
    replicas: int
    router: str
    slo: Mapping[str, float]
    seed: int


@dataclass(frozen=True)
class Found:
    """Result of a search.

    ``rows``: every configuration with what it gave, cheapest first; ``best``: the cheapest of
    those that meet the SLO, None if none does.
    """

    rows: tuple[dict[str, Any], ...]
    attain: float

    @property
    def best(self) -> dict[str, Any] | None:
        """The cheapest that meets the SLO; of equals the one that meets it best."""
        return next((row for row in self.rows if row["meets"]), None)


def search(
    trace: TraceFile,
    engine: Engine,
    *,
    options: Mapping[str, Sequence[Any]],
    slo: Mapping[str, float],
    attain: float = 0.99,
    speed: float = 1.0,
    seed: int = 0,
    folder: str | Path | None = None,
    backend: str = "local",
    workers: int | None = None,
) -> Found:
    """Simulate every combination of ``options`` and rank them by what they cost.

    The cost of a configuration is the time that its replicas are up, in replica-seconds.

    Args:
        trace: the requests; each process reads the file itself.
        engine: settings that the options change.
        options: values by ``replicas``, ``router``, ``policy`` or a limit of the calibration.
        slo: limits in seconds by ``ttft``, ``tpot``, ``e2e``.
        attain: share of all requests that must meet them.
        speed: how many times as fast the trace is sent.
        seed: of the routers.
        folder: where finished rows are kept; an interrupted search goes on from there.
        backend, workers: see ``run_tasks``.

    Raises:
        UsageError: no SLO, an unknown option, a value that no engine takes.
    """
    if not slo:
        raise UsageError("a search needs an objective, e.g. --slo ttft=1.0,tpot=0.1")
    if not 0 < attain <= 1:
        raise UsageError(f"attain is {attain}; allowed: above 0, at most 1")
    StreamedMetrics(slo=slo)
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise UsageError(f"option {unknown[0]!r}; allowed: {', '.join(OPTIONS)}")
    tasks = {
        json.dumps(row): _task(row, trace, engine, speed=speed, slo=slo, seed=seed)
        for row in keys_of(options)
    }
    about = {
        "trace": str(trace.path), "format": trace.format, "limit": trace.limit, "speed": speed,
        "calibration": engine.calibration.to_dict(), "slo": dict(slo), "seed": seed,
        "prefix_cache": engine.prefix_cache, "size_bytes": _size_bytes(trace.path),
        "row_version": ROW_VERSION,
    }  # fmt: skip
    journal = None if folder is None else Path(folder) / "search.jsonl"
    found = run_tasks(
        simulate_task, tasks, journal=journal, about=about, backend=backend, workers=workers
    )
    rows = [{**json.loads(key), **row} for key, row in found.items()]
    for row in rows:
        row["meets"] = row["slo_attainment"] >= attain
    rows.sort(key=lambda row: (row["replica_s"], -row["slo_attainment"]))
    return Found(tuple(rows), attain)


def _size_bytes(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


def _task(
    row: Mapping[str, Any],
    trace: TraceFile,
    engine: Engine,
    *,
    speed: float,
    slo: Mapping[str, float],
    seed: int,
) -> SearchTask:
    limits = {name: row[name] for name in LIMITS if name in row}
    changed = replace(
        engine,
        calibration=replace(engine.calibration, **limits),
        policy=row.get("policy", engine.policy),
    )
    router = row.get("router", "round-robin")
    make_router(router)
    return SearchTask(trace, speed, changed, row.get("replicas", 1), router, slo, seed)


def simulate_task(task: SearchTask) -> dict[str, Any]:
    """What one configuration gives."""
    found = simulate(
        sped_up(task.trace, task.speed), task.engine, replicas=task.replicas, router=task.router,
        slo=task.slo, seed=task.seed, exact=False,
    )  # fmt: skip
    facts = found.to_dict()
    kept = (
        "requests", "completed", "refused", "slo_attainment", "goodput_req_s", "throughput_tok_s",
        "prefix_hit_rate", "prefix_hit_note", "preemptions", "output_tokens", "replica_s", "busy_s",
        "busy_share", "wall_s",
    )  # fmt: skip
    out = {name: facts[name] for name in kept}
    out["skipped_rows"] = task.trace.skipped.rows
    for name in ("ttft", "tpot", "e2e"):
        out |= {f"{name}_p{p}_s": facts[f"{name}_s"][f"p{p}"] for p in (50, 99)}
    return out


def sped_up(trace: Any, speed: float) -> Any:
    """The same requests, their times divided by ``speed``. Raises UsageError."""
    if not 0 < speed < float("inf"):
        raise UsageError(f"speed is {speed}; allowed: above 0")
    if speed == 1:
        return trace
    return (
        TraceRequest(
            row.arrival_s / speed, row.input_tokens, row.output_tokens, row.block_ids,
            row.block_tokens, row.tenant, row.priority, row.session,
        )
        for row in trace
    )  # fmt: skip
