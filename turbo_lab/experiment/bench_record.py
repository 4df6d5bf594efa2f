"""The record of one benchmark run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turbo_lab.client import resources
from turbo_lab.core import host
from turbo_lab.experiment import asked
from turbo_lab.experiment.gates import Evidence, judge_gates, prefix_hit_rate
from turbo_lab.experiment.groups import group_tables
from turbo_lab.experiment.measured import measurements
from turbo_lab.experiment.preflight import Dialect
from turbo_lab.experiment.run_folder import SavedRun
from turbo_lab.experiment.server_facts import Server
from turbo_lab.metrics import definitions
from turbo_lab.metrics.cost import cost_per_million_tokens, energy_per_million_tokens
from turbo_lab.metrics.goodput import attainment
from turbo_lab.metrics.summary import Summary, summarize
from turbo_lab.records.digest import seal
from turbo_lab.records.environment import capture_environment, utc_now
from turbo_lab.records.schema import SCHEMA_VERSION, Observation, Record

if TYPE_CHECKING:
    from turbo_lab.experiment.bench import Options

CURVE_POINTS = 400


def make_record(
    evidence: Evidence,
    *,
    base_url: str,
    server: Server,
    dialect: Dialect,
    options: Options,
    saved: SavedRun,
) -> Record:
    """Everything that one run leaves: conditions, all samples, gates; sealed by its digest."""
    plan = evidence.plan
    return seal(
        Record(
            schema_version=SCHEMA_VERSION,
            study=options.study,
            created_at=utc_now(),
            mode="gpu" if host.gpus() else "cpu",
            effort=options.effort,  # type: ignore[arg-type]
            complete=len(evidence.timelines) == plan.requests,
            replayed_from=None,
            variables={
                **plan.variables(),
                "usage": dialect.usage,
                "ignore_eos": dialect.ignore_eos,
            },
            command=options.command,
            workload_digest=plan.shape_digest(),
            seed=plan.seed,
            environment=capture_environment(),
            engines=(options.engine or server.engine,),
            predictions=(),
            measurements=measurements(plan, evidence.timelines),
            observations=_observations(evidence, base_url, server, dialect, saved)
            + _money(evidence, options.price_per_hour),
            gates=judge_gates(evidence),
            comparison=(),
            predictions_met=0,
            predictions_total=0,
            digest=None,
        )
    )


def _observations(
    evidence: Evidence, base_url: str, server: Server, dialect: Dialect, saved: SavedRun
) -> tuple[Observation, ...]:
    plan, rows = evidence.plan, evidence.resources
    summary = summarize(evidence.timelines)
    found: dict[str, Any] = {
        "target": {"base_url": base_url, "server_start": server.started},
        "plan": plan.to_dict(),
        "dialect": dict(dialect.__dict__),
        "prompts": {
            "salt": plan.prompt_salt,
            "digest": saved.header.get("prompts_digest"),
            "shared_share": asked.shared_share(evidence.good),
        },
        "sessions": [{"started_at": s.started_at, "end": s.end} for s in saved.sessions],
        "summary": summary.to_dict(),
        "calibration": evidence.calibration and evidence.calibration.to_dict(),
        "resources": {**resources.describe(rows), "prefix_hit_rate": prefix_hit_rate(rows)},
        "resource_curves": curves(rows),
        "lengths": _lengths(evidence),
        "replies": reply_digests(evidence),
    }
    if plan.slo:
        found["slo"] = _slo(evidence)
    if plan.retries:
        found["attempts"] = asked.attempts(evidence.timelines)
    if groups := group_tables(evidence.timelines):
        found["groups"] = groups
    if energy := found["resources"]["gpu_energy_j"]:
        found["energy"] = _energy(summary, energy)
    return tuple(Observation(name=n, data=d, reason=None if d is not None else "not asked for")
                 for n, d in found.items())  # fmt: skip


def _money(evidence: Evidence, price_per_hour: float | None) -> tuple[Observation, ...]:
    """Cost per million output tokens, where a price was given."""
    if price_per_hour is None:
        return ()
    cost = cost_per_million_tokens(summarize(evidence.timelines), price_per_hour=price_per_hour)
    data = {"value": cost.value, "unit": cost.unit, "definition": cost.definition}
    return (Observation(name="cost", data=data, reason=cost.why_not or None),)


def _slo(evidence: Evidence) -> dict[str, Any]:
    met = attainment(evidence.timelines, slo=evidence.plan.slo)
    return {
        "limits_s": dict(met.slo),
        "attained": met.attained,
        "counted": met.counted,
        "of": met.of,
        "share": met.share,
        "goodput_req_s": met.goodput_req_s,
        "not_applicable": dict(met.not_applicable),
        "unknown": met.unknown,
    }


def _energy(summary: Summary, energy_j: float) -> dict[str, Any]:
    per_million = energy_per_million_tokens(summary, energy_j=energy_j)
    return {"energy_j": energy_j, "kwh_per_million_output_tokens": per_million.value,
            "definition": per_million.definition}  # fmt: skip


def _lengths(evidence: Evidence) -> dict[str, Any]:
    """Mean token counts by the server, for the drift checks between two runs."""
    out = [n for t in evidence.good if (n := definitions.output_tokens(t)) is not None]
    asked = [n for t in evidence.good if (n := definitions.input_tokens(t)) is not None]
    return {
        "output_tokens_mean": sum(out) / len(out) if out else None,
        "input_tokens_mean": sum(asked) / len(asked) if asked else None,
    }


def reply_digests(evidence: Evidence) -> list[str | None]:
    """A short digest of each reply's text, in the order of the requests.

    None where it failed, and for later turns: their prompts hold earlier replies, so they were not
    asked the same as in another run.
    """
    return [
        hashlib.sha256(t.text.encode()).hexdigest()[:16]
        if t.text is not None and t.labels.get("turn", 1) == 1 and definitions.outcome(t).ok
        else None
        for t in evidence.timelines
    ]


def curves(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The resource samples, thinned to at most 400 points, ready to draw."""
    step = max(1, len(rows) // CURVE_POINTS)
    return [dict(row) for row in rows[::step]]
