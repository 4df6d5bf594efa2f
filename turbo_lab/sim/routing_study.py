"""Routing policies side by side: one load, one fleet, one policy after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from turbo_lab.core.errors import UsageError
from turbo_lab.metrics.cost import PowerModel
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.fleet import Control
from turbo_lab.sim.result import SimResult
from turbo_lab.sim.simulate import simulate
from turbo_lab.workload.trace_request import TraceRequest

Load = Sequence[TraceRequest]


@dataclass(frozen=True)
class Policy:
    """A router, and what else is done about the load. ``own_queue``: policy of every replica."""

    router: str
    own_queue: str = "fcfs"
    controls: tuple[Control, ...] = ()


def saturation_req_s(requests: Iterable[TraceRequest], engine: Engine) -> float:
    """Requests per second that one replica completes when all of them wait at the start.

    Raises UsageError where it can serve none of them.
    """
    crowd = [replace(request, arrival_s=0.0) for request in requests]
    found = simulate(crowd, engine)
    if not found.completed:
        raise UsageError(
            f"none of the {found.requests} requests fits into {engine.cache_tokens:,} tokens of "
            "cache; give shorter ones, or more blocks"
        )
    return found.completed / found.duration_s


def at_rate(requests: Load, rate_per_s: float) -> list[TraceRequest]:
    """The same requests, their times stretched so that they come at this mean rate.

    Raises UsageError for fewer than two, or where the last does not come after the first.
    """
    if len(requests) < 2 or rate_per_s <= 0:
        raise UsageError(f"{len(requests)} requests at {rate_per_s}/s; give two or more, above 0/s")
    span_s = requests[-1].arrival_s - requests[0].arrival_s
    if not span_s > 0:
        raise UsageError(
            f"the last request comes {span_s:g} s after the first, so no stretching gives a rate; "
            "sort the load by time, or give requests that do not all come at once"
        )
    factor = (len(requests) - 1) / rate_per_s / span_s
    return [replace(request, arrival_s=request.arrival_s * factor) for request in requests]


def side_by_side(
    load: Load,
    engine: Engine,
    *,
    replicas: int,
    policies: Mapping[str, Policy],
    slo: Mapping[str, float] | None = None,
    seed: int = 0,
) -> dict[str, SimResult]:
    """Serve the same load under each policy; only the policy differs."""
    return {
        name: simulate(
            load, replace(engine, policy=policy.own_queue), replicas=replicas,
            router=policy.router, controls=policy.controls, slo=slo, seed=seed,
            keep_timelines=True,
        )
        for name, policy in policies.items()
    }  # fmt: skip


def policy_rows(runs: Mapping[str, SimResult]) -> Iterator[dict[str, float | str | None]]:
    """One row of a table per policy: latencies in s, hits and attainment as shares."""
    for name, run in runs.items():
        yield {
            "policy": name,
            "TTFT P50 [s]": run.metrics["ttft"].percentile(50),
            "TTFT P99 [s]": run.metrics["ttft"].percentile(99),
            "TPOT P50 [s]": run.metrics["tpot"].percentile(50),
            "prefix hits": run.prefix_hit_rate,
            "SLO met": run.slo_attainment,
            "goodput [req/s]": run.metrics.attained / run.duration_s if run.metrics.slo else None,
            "moved": float(run.migrations),
        }


def fewest_replicas(
    load: Load,
    engine: Engine,
    *,
    router: str,
    slo: Mapping[str, float],
    attain: float,
    most: int,
    seed: int = 0,
) -> tuple[int | None, list[float]]:
    """The fewest replicas with which the share ``attain`` meets the SLO, and each try's share.

    None where even ``most`` are not enough.
    """
    shares: list[float] = []
    for count in range(1, most + 1):
        run = simulate(load, engine, replicas=count, router=router, slo=slo, seed=seed)
        shares.append(run.slo_attainment or 0.0)
        if shares[-1] >= attain:
            return count, shares
    return None, shares


def at_equal_service(
    load: Load,
    engine: Engine,
    *,
    replicas: Mapping[str, int | None],
    slo: Mapping[str, float],
    seed: int = 0,
) -> dict[str, SimResult]:
    """Each router with its own number of replicas; one without a number is left out."""
    return {
        router: simulate(load, engine, replicas=count, router=router, slo=slo, seed=seed)
        for router, count in replicas.items()
        if count
    }


def energy_rows(
    runs: Mapping[str, SimResult],
    *,
    idle_shares: Sequence[float],
    power: PowerModel | None = None,
) -> Iterator[dict[str, float | str | None]]:
    """One row per run: what a request costs in replica-seconds, and in energy.

    The energy is in seconds of a busy replica's power, for each ratio of idle to busy power,
    ``(busy time + ratio * idle time) / requests``; in joules too where the power is known.
    """
    for name, run in runs.items():
        idle_s, count = max(0.0, run.replica_s - run.busy_s), run.completed
        row: dict[str, float | str | None] = {
            "router": name,
            "SLO met": run.slo_attainment,
            "busy": run.busy_s / run.replica_s,
            "replica-seconds": run.replica_s / count,
        }
        for share in idle_shares:
            row[f"energy, idle {share:.0%}"] = (run.busy_s + share * idle_s) / count
        if power is not None:
            energy = power.energy_j(busy_s=run.busy_s, up_s=run.replica_s)
            row["energy [J]"] = None if energy is None else energy / count
        yield row


def tenant_waits(run: SimResult, *, percent: float) -> dict[str, float]:
    """A percentile of TTFT in s for each tenant."""
    from turbo_lab.metrics.percentiles import percentile

    waits: dict[str, list[float]] = {}
    for job in run.jobs or ():
        waits.setdefault(job.request.tenant, []).append((job.first_fs - job.sent_fs) / 1e15)
    return {tenant: percentile(w, percent) or 0.0 for tenant, w in sorted(waits.items())}
