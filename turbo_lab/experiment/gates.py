"""Validity gates: conditions without which the numbers of a run mean nothing.

A gate is passed, failed, or unknown (None) where the server does not tell. ``BLOCKING`` names
those whose failure makes a comparison answer "cannot tell"; the others are warnings.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.client import resources
from turbo_lab.client.calibration import Calibration
from turbo_lab.experiment import asked
from turbo_lab.experiment.plan import BenchPlan
from turbo_lab.metrics import definitions
from turbo_lab.metrics.percentiles import percentile, samples_to_certify
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.records.schema import Gate
from turbo_lab.workload.arrivals import rate_per_s

BLOCKING = frozenset({
    "complete", "failures", "output length", "achieved rate", "client", "server stayed up",
})  # fmt: skip
LENGTH_TOLERANCE = 0.02
INPUT_TOLERANCE = 0.10
RATE_TOLERANCE = 0.05
LAG_FLOOR_S, LAG_SHARE = 0.005, 0.10
CLIENT_CORES_LIMIT = 0.85
HIT_LIMIT = 0.10
OTHERS_SHARE = 0.10
PREEMPTIONS = ("vllm:num_preemptions_total", "vllm:num_preemptions", "sglang:num_retracted_reqs")
HITS = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
QUERIES = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")


@dataclass(frozen=True)
class Evidence:
    """What the gates look at: all attempted requests and what was sampled beside them."""

    plan: BenchPlan
    timelines: Sequence[Timeline]
    resources: Sequence[Mapping[str, Any]] = ()
    calibration: Calibration | None = None
    sessions: int = 1
    lost: int = 0
    restarted: int = 0
    ending: str = "finished"

    @property
    def good(self) -> list[Timeline]:
        """Requests that succeeded."""
        return [t for t in self.timelines if definitions.outcome(t).ok]


def judge_gates(evidence: Evidence) -> tuple[Gate, ...]:
    """All gates of one run."""
    checks = (
        _complete, _failures, _server_up, _output_length, _input_length, _achieved_rate, _client,
        _prefix_hits, _preemptions, _quiet, _samples,
    )  # fmt: skip
    found = tuple(check(evidence) for check in checks)
    return (*found, _retries(evidence)) if evidence.plan.retries else found


def _gate(name: str, passed: bool | None, detail: str) -> Gate:
    return Gate(name=name, passed=passed, detail=detail)


def _complete(e: Evidence) -> Gate:
    count, total = len(e.timelines), e.plan.requests
    sessions = f" in {e.sessions} sessions" if e.sessions > 1 else ""
    detail = f"{count} of {total} requests{sessions}; {e.ending}"
    if e.restarted:
        detail += f"; {e.restarted} turns of interrupted conversations were asked anew"
    return _gate("complete", count == total, detail)


def _failures(e: Evidence) -> Gate:
    states = [definitions.outcome(t) for t in e.timelines]
    failed = Counter(s.reason[:120] for s in states if not s.ok)
    count = sum(failed.values())
    detail = f"{count} of {len(states)} requests failed"
    if failed:
        detail += ": " + "; ".join(f"{n} x {why}" for why, n in failed.most_common(3))
    return _gate("failures", count == 0 if states else None, detail)


def _server_up(e: Evidence) -> Gate:
    if not e.lost:
        return _gate("server stayed up", True, "no request was lost to a dead connection")
    return _gate(
        "server stayed up", False,
        f"{e.lost} attempts died with the server; they were sent again or are missing",
    )  # fmt: skip


def _retries(e: Evidence) -> Gate:
    found = asked.attempts(e.timelines)
    return _gate("retries", not found["retried"], asked.attempts_text(found))


def _output_length(e: Evidence) -> Gate:
    pairs = asked.output_lengths(e.plan, e.good)
    if not pairs:
        return _gate("output length", None, "the server does not count output tokens")
    wanted, mean = _means(pairs)
    exact = sum(want == got for want, got in pairs)
    near = _distance(pairs) <= LENGTH_TOLERANCE * wanted
    return _gate(
        "output length", near,
        f"asked {_short(wanted)} tokens, mean {mean:.1f}, {exact} of {len(pairs)} replies exact",
    )  # fmt: skip


def _input_length(e: Evidence) -> Gate:
    if e.plan.workload.texts:
        return _gate("input length", None, "the prompts are given texts: no length was asked for")
    pairs = asked.input_lengths(e.plan, e.good)
    if not pairs:
        return _gate("input length", None, "the server does not count prompt tokens")
    wanted, mean = _means(pairs)
    near = _distance(pairs) <= max(INPUT_TOLERANCE * wanted, 2)
    what = " that each turn adds" if e.plan.workload.turns > 1 else ""
    detail = f"asked {_short(wanted)} tokens{what}, mean {mean:.1f} by the server"
    return _gate("input length", near, detail)


def _means(pairs: Sequence[asked.Pair]) -> tuple[float, float]:
    wanted, got = zip(*pairs, strict=True)
    return sum(wanted) / len(pairs), sum(got) / len(pairs)


def _distance(pairs: Sequence[asked.Pair]) -> float:
    """How far the lengths lie from what was asked: of the means; of each where they differ."""
    if len({want for want, _ in pairs}) > 1:
        return sum(abs(got - want) for want, got in pairs) / len(pairs)
    wanted, mean = _means(pairs)
    return abs(mean - wanted)


def _short(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.1f} (mean)"


def _achieved_rate(e: Evidence) -> Gate:
    schedule = e.plan.schedule_s()
    if schedule is None:
        return _gate("achieved rate", None, "closed loop: no rate was asked for")
    if e.sessions > 1:
        return _gate("achieved rate", None, "several sessions: the schedule was cut")
    wanted = rate_per_s(schedule)
    begun = [t for t in e.timelines if t.sent_s is not None and t.labels.get("turn", 1) == 1]
    achieved = rate_per_s([t.sent_s for t in begun if t.sent_s is not None])
    if wanted is None or achieved is None:
        return _gate("achieved rate", None, "too few requests for a rate")
    near = abs(achieved / wanted - 1) <= RATE_TOLERANCE
    unit = "req/s" if e.plan.workload.turns == 1 else "conversations/s"
    detail = f"scheduled {wanted:.4g} {unit}, sent {achieved:.4g} {unit}"
    return _gate("achieved rate", near, detail)


def _client(e: Evidence) -> Gate:
    """The client is the bottleneck when it sends late or has no processor time left."""
    lags = [lag for t in e.timelines if (lag := definitions.dispatch_lag_s(t)) is not None]
    waits = [v for t in e.good if (v := definitions.ttft_s(t)) is not None]
    limit = max(LAG_FLOOR_S, LAG_SHARE * (percentile(waits, 50) or 0.0))
    problems, facts = [], []
    if lags:
        p = _highest_certified(len(lags))
        late, worst = percentile(lags, p) or 0.0, percentile(lags, 99) or 0.0
        facts.append(
            f"dispatch lag p{p} {late * 1e3:.1f} ms (p99 {worst * 1e3:.1f}), "
            f"limit {limit * 1e3:.1f} ms"
        )
        problems += [late > limit]
    cores = resources.describe(e.resources)["client_cores_mean"] if e.resources else None
    if cores is not None:
        facts.append(f"client used {cores:.2f} cores, limit {CLIENT_CORES_LIMIT}")
        problems += [cores > CLIENT_CORES_LIMIT]
    if e.calibration is not None:
        own = e.calibration.ttft_error_p95_s
        facts.append(f"own TTFT error at this load p95 {own * 1e3:.1f} ms")
        problems += [own > limit]
    if not problems:
        return _gate("client", None, "not checked: closed loop, no sampler, no calibration")
    return _gate("client", not any(problems), "; ".join(facts))


def _highest_certified(count: int) -> int:
    """The tail percentile that this many samples can support; one late send is no verdict."""
    return max((p for p in (50, 90, 95, 99) if count >= samples_to_certify(p)), default=50)


def prefix_hit_rate(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Share of prompt tokens that the engine found in its prefix cache during the run."""
    hits, asked = resources.first_growth(rows, HITS), resources.first_growth(rows, QUERIES)
    return hits / asked if hits is not None and asked else None


def _prefix_hits(e: Evidence) -> Gate:
    share = prefix_hit_rate(e.resources)
    if share is None:
        return _gate("prefix hits", None, "the engine does not count them, or its cache is off")
    offered = asked.shared_share(e.good)
    text = f"{share:.1%} of the prompt tokens came from the prefix cache"
    if offered is None:
        return _gate("prefix hits", None, f"{text}; the server does not count prompt tokens")
    if not offered:
        return _gate("prefix hits", share <= HIT_LIMIT, f"{text}; the prompts share nothing")
    text += f"; the workload repeats {offered:.1%}"
    if share < offered - HIT_LIMIT:
        text += " (the rest was not kept, or requests came before it was there)"
    return _gate("prefix hits", share <= offered + HIT_LIMIT, text)


def _preemptions(e: Evidence) -> Gate:
    count = resources.first_growth(e.resources, PREEMPTIONS)
    if count is None:
        return _gate("preemptions", None, "the engine does not count them")
    return _gate("preemptions", count == 0, f"{count:.0f} preemptions during the run")


def _quiet(e: Evidence) -> Gate:
    """Other work on the machine slows server and client, and a later run may meet none of it."""
    cores = os.cpu_count() or 1
    others = resources.other_cores(e.resources, cores=cores)
    if others is None:
        return _gate("quiet machine", None, "the processor time of all processes was not sampled")
    known = "client and server" if "server" in e.resources[0]["processes"] else "the client"
    return _gate(
        "quiet machine", others <= OTHERS_SHARE * cores,
        f"processes other than {known} used {others:.2f} of {cores} cores, "
        f"limit {OTHERS_SHARE * cores:.2f}",
    )  # fmt: skip


def _samples(e: Evidence) -> Gate:
    count = len(e.good)
    needed = {p: samples_to_certify(p) for p in (50, 90, 95, 99)}
    certified = [f"P{p}" for p, n in needed.items() if count >= n]
    text = ", ".join(certified) or "no percentile"
    rest = ", ".join(f"P{p} needs {n}" for p, n in needed.items() if count < n)
    detail = f"{count} successful requests certify {text}" + (f" ({rest})" if rest else "")
    return _gate("samples", count >= needed[50], detail)
