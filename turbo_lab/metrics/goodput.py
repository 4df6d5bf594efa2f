"""Service-level objectives: which requests met them, and how many of those per second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.metrics import definitions
from turbo_lab.metrics.conventions import convention as find_convention
from turbo_lab.metrics.rules import Convention, SloRule
from turbo_lab.metrics.summary import duration_s as run_duration_s
from turbo_lab.metrics.timeline import Timeline

Verdict = Literal["met", "missed", "not applicable", "unknown"]
TOKEN_OBJECTIVES = frozenset({"tpot", "ntpot"})


@dataclass(frozen=True)
class Attainment:
    """How many requests met all objectives.

    Attributes:
        slo: objective to limit in seconds.
        attained: requests that met every objective that applies to them.
        counted: the denominator, ``of`` says of what.
        not_applicable: per objective, requests it cannot apply to (a TPOT limit on a one-token
            reply). Under this project's contract they do not count against the request.
        unknown: requests whose verdict hangs on a number that the server did not give.
        share: attained / counted; None when nothing counts or a verdict is unknown.
        goodput_req_s: attained / ``duration_s``; None likewise.
    """

    convention: str
    slo: Mapping[str, float]
    attempted: int
    attained: int
    counted: int
    of: str
    not_applicable: Mapping[str, int]
    unknown: int
    duration_s: float | None
    share: float | None
    goodput_req_s: float | None

    def __str__(self) -> str:
        limits = ", ".join(f"{name} <= {limit * 1e3:g} ms" for name, limit in self.slo.items())
        share = "undefined" if self.share is None else f"{self.share:.1%}"
        rate = "undefined" if self.goodput_req_s is None else f"{self.goodput_req_s:.4g} req/s"
        lines = [
            f"SLO {limits} ({self.convention})",
            f"  attained {self.attained} of {self.counted} {self.of} ({share}), goodput {rate}",
        ]
        lines += [f"  {k} not applicable to {n} requests" for k, n in self.not_applicable.items()]
        if self.unknown:
            lines.append(f"  cannot tell for {self.unknown} requests: token counts are unknown")
        return "\n".join(lines)


def attainment(
    timelines: Iterable[Timeline],
    *,
    slo: Mapping[str, float],
    convention: str = "turbo",
    duration_s: float | None = None,
) -> Attainment:
    """Check every request against the objectives.

    Args:
        timelines: all attempted requests, failed ones included.
        slo: limits in seconds by name (``ttft``, ``tpot``, ``e2e``; ``ttft_scheduled`` and
            ``e2e_scheduled`` run from the schedule). A value equal to its limit meets it.
        convention: whose rule for metrics, missing metrics and denominator.
        duration_s: length of the run; default: first scheduled or send time to the last close.

    Raises:
        UsageError: an unknown objective, a limit that is not above 0, a tool without goodput.
    """
    rule_set = find_convention(convention)
    rule = _checked(slo, rule_set)
    runs = [t.validate() for t in timelines]
    good = [t for t in runs if rule_set.succeeded(t)]
    verdicts = [{n: _verdict(t, n, slo[n], rule_set, rule) for n in slo} for t in good]
    judged = [_request(v, rule) for v in verdicts]
    attained, unknown = judged.count("met"), judged.count("unknown")
    failed = len(runs) - len(good) if rule.of == "attempted" else 0
    counted = len(good) + failed - judged.count("excluded")
    span = duration_s if duration_s is not None else run_duration_s(runs)
    return Attainment(
        convention=f"{rule_set.name} {rule_set.version}",
        slo=dict(slo),
        attempted=len(runs),
        attained=attained,
        counted=counted,
        of=rule.of,
        not_applicable=_missing_counts(verdicts),
        unknown=unknown,
        duration_s=span,
        share=None if unknown or not counted else attained / counted,
        goodput_req_s=None if unknown or not span or not runs else attained / span,
    )


def _checked(slo: Mapping[str, float], rule_set: Convention) -> SloRule:
    if rule_set.slo is None:
        raise UsageError(
            f"{rule_set.name} has no goodput; use turbo, vllm-0.32, guidellm, "
            "aiperf or inference-perf"
        )
    if not slo:
        raise UsageError("no objective given, e.g. slo={'ttft': 0.25, 'tpot': 0.05}")
    for name, limit in slo.items():
        if name not in rule_set.slo.metrics:
            raise UsageError(f"objective {name!r}.{did_you_mean(name, [*rule_set.slo.metrics])}")
        if not 0 < limit < float("inf"):
            raise UsageError(f"the limit of {name} is {limit!r} s; it must be above 0")
    return rule_set.slo


def _verdict(
    timeline: Timeline, name: str, limit_s: float, rule_set: Convention, rule: SloRule
) -> Verdict:
    values = rule_set.rule(rule.metrics[name]).values(timeline)
    if values:
        return "met" if values[0] <= limit_s else "missed"
    if not timeline.visible():
        return "missed"
    if name in TOKEN_OBJECTIVES and len(definitions.arrivals(timeline)) > 1:
        counted = rule_set.output_tokens(timeline)
        if counted is None or (counted > 1 and rule.missing == "not applicable"):
            return "unknown"  # The number exists; the server did not give what it takes.
    return "not applicable"


def _request(verdicts: Mapping[str, Verdict], rule: SloRule) -> str:
    found = set(verdicts.values())
    if "missed" in found or ("not applicable" in found and rule.missing == "missed"):
        return "missed"
    if "not applicable" in found and rule.missing == "excluded":
        return "excluded"
    return "unknown" if "unknown" in found else "met"


def _missing_counts(verdicts: Sequence[Mapping[str, Verdict]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in verdicts:
        for name, verdict in row.items():
            if verdict == "not applicable":
                counts[name] = counts.get(name, 0) + 1
    return counts
