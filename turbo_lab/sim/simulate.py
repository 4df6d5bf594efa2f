"""``simulate``: a trace, an engine, a router; out come metrics. The door to this folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from turbo_lab.core.errors import UsageError
from turbo_lab.metrics.streamed import StreamedMetrics
from turbo_lab.sim.clock import FS_PER_S, to_s
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.fleet import Control, Fleet, Watch
from turbo_lab.sim.job import Job
from turbo_lab.sim.pools import make_router
from turbo_lab.sim.result import SimResult
from turbo_lab.sim.routers import Router
from turbo_lab.workload.trace_request import TraceRequest

PIECE = 4096  # requests read at a time


def simulate(
    trace: Iterable[TraceRequest],
    engine: Engine,
    *,
    replicas: int = 1,
    router: str | Router = "round-robin",
    slo: Mapping[str, float] | None = None,
    seed: int = 0,
    keep_timelines: bool = False,
    exact: bool = True,
    controls: Iterable[Control] = (),
    watch: Watch | None = None,
) -> SimResult:
    """Serve a trace on simulated replicas.

    Args:
        trace: requests in the order of their times; read one by one, never kept as a whole.
        engine: calibration and scheduling of every replica.
        replicas: how many there are at the start.
        router: policy by name (``pools.ROUTERS``) or an own one; one replica needs none.
        slo: limits in seconds by ``ttft``, ``tpot``, ``e2e``.
        seed: of the router's draws.
        keep_timelines: keep all token times for ``SimResult.timelines`` (memory grows).
        exact: keep every sample of TTFT, TPOT and E2E; False sketches them in bounded memory.
        controls: set up on the fleet before the run: failures, autoscaling, migration.
        watch: called with the fleet after every event (slow; for tests).

    Raises:
        UsageError: an empty or unsorted trace, an unknown router.
    """
    began = time.perf_counter()
    result = SimResult(metrics=StreamedMetrics(exact=exact, slo=slo))
    kept: list[Job] | None = [] if keep_timelines else None
    fleet = Fleet(
        engine,
        router=make_router(router, seed=seed) if isinstance(router, str) else router,
        replicas=replicas,
        on_finish=_sink(result, kept),
        keep_steps=keep_timelines,
        watch=watch,
    )
    for control in controls:
        control(fleet)
    first_fs = _run(fleet, trace, result, keep=keep_timelines)
    if result.completed:  # else every request was refused, and nothing took any time
        result.duration_s = to_s(fleet.last_fs - first_fs)
    result.preemptions = sum(r.preemptions for r in fleet.replicas)
    result.busy_s = to_s(sum(r.busy_fs for r in fleet.replicas))
    result.replica_s = to_s(fleet.paid_fs)
    result.migrations, result.restarts = fleet.migrations, fleet.restarts
    result.jobs = kept
    result.wall_s = time.perf_counter() - began - result.read_s
    return result


def _run(fleet: Fleet, trace: Iterable[TraceRequest], result: SimResult, *, keep: bool) -> int:
    """Run; returns the time of the first send."""
    first: list[int] = []
    fits = fleet.engine.fits

    def jobs() -> Iterator[Job]:
        for index, request in enumerate(_read(trace, result)):
            job = Job(request, index)
            if request.block_ids:
                result.told_blocks = True
            if keep:
                job.bursts = []
            if not first:
                first.append(job.sent_fs)
            if fits(job):
                yield job
            else:
                result.refused += 1
        result.requests = index + 1 if first else 0

    fleet.run(jobs())
    if not first:
        raise UsageError("the trace has no requests")
    return first[0]


def _read(trace: Iterable[TraceRequest], result: SimResult) -> Iterator[TraceRequest]:
    """The requests, read in pieces, so that reading is timed apart."""
    rows = iter(trace)
    while True:
        began = time.perf_counter()
        piece = list(islice(rows, PIECE))
        result.read_s += time.perf_counter() - began
        if not piece:
            return
        yield from piece


def _sink(result: SimResult, kept: list[Job] | None) -> Callable[[Job, int], None]:
    add = result.metrics.add

    def done(job: Job, now_fs: int) -> None:
        first = job.first_fs
        add((first - job.sent_fs) / FS_PER_S, (job.last_fs - first) / FS_PER_S, job.output)
        result.prompt_tokens += job.prompt
        result.hit_tokens += job.hit_tokens
        if kept is not None:
            kept.append(job)

    return done
