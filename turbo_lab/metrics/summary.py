"""Many timelines to one summary that prints its own definitions. Absent is never written as 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.metrics import definitions
from turbo_lab.metrics.conventions import convention as find_convention
from turbo_lab.metrics.metric import PERCENTILES, Metric, Quantity
from turbo_lab.metrics.percentiles import samples_to_certify
from turbo_lab.metrics.rules import Convention, Rule
from turbo_lab.metrics.timeline import Timeline


@dataclass(frozen=True)
class Summary:
    """A run under one convention. ``summary.ttft_s.p95``, ``summary["tpot_s"].mean``."""

    convention: str
    source: str
    attempted: int
    succeeded: int
    failures: dict[str, int]
    notes: dict[str, int]
    metrics: dict[str, Metric]
    quantities: dict[str, Quantity]

    @property
    def failed(self) -> int:
        """Requests that did not succeed under this convention."""
        return self.attempted - self.succeeded

    @property
    def verdict(self) -> str:
        """``no data`` when nothing succeeded, ``failures`` when something failed, else ``ok``."""
        if not self.succeeded:
            return "no data"
        return "failures" if self.failed else "ok"

    @property
    def comparable(self) -> bool:
        """False when failures block a comparison with another run."""
        return self.verdict == "ok"

    def __getitem__(self, name: str) -> Metric | Quantity:
        """A metric or a whole-run quantity by name; KeyError lists the names."""
        if name in self.metrics:
            return self.metrics[name]
        if name in self.quantities:
            return self.quantities[name]
        raise KeyError(f"{name!r}; there are {sorted(self.metrics)} {sorted(self.quantities)}")

    def __getattr__(self, name: str) -> Metric | Quantity:
        """``summary.ttft_s`` for ``summary["ttft_s"]``."""
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(f"no metric {error.args[0]}") from None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, metrics with unit and definition."""
        return {
            "convention": self.convention,
            "source": self.source,
            "attempted": self.attempted,
            "succeeded": self.succeeded,
            "failures": dict(self.failures),
            "notes": dict(self.notes),
            "verdict": self.verdict,
            "metrics": {name: m.to_dict() for name, m in self.metrics.items()},
            "quantities": {
                name: {"unit": q.unit, "definition": q.definition, "value": q.value}
                for name, q in self.quantities.items()
            },
        }

    def __str__(self) -> str:
        lines = [
            f"convention {self.convention} ({self.source}); times on the client's monotonic clock",
            f"requests: {self.attempted} attempted, {self.succeeded} succeeded, "
            f"{self.failed} failed; verdict: {self.verdict}",
        ]
        lines += [f"  failed {n} x: {why}" for why, n in sorted(self.failures.items())]
        lines += [f"  note {n} x: {what}" for what, n in sorted(self.notes.items())]
        lines += [str(m) for m in self.metrics.values()]
        lines += [str(q) for q in self.quantities.values()]
        needed = ", ".join(f"P{p} {samples_to_certify(p)}" for p in PERCENTILES)
        lines.append(f"samples needed to certify a percentile at 99 % confidence: {needed}")
        return "\n".join(lines)


def summarize(timelines: Iterable[Timeline], *, convention: str = "turbo") -> Summary:
    """Compute the metrics of a run.

    Args:
        timelines: one per request that was attempted, failed ones included.
        convention: ``turbo`` (this project's contract) or a public tool's rule by name.

    Raises:
        TimelineError: a timeline that cannot have happened; the message names the request.
        UsageError: an unknown convention.
    """
    rule_set = find_convention(convention)
    runs = [timeline.validate() for timeline in timelines]
    counted = [t for t in runs if rule_set.succeeded(t)]
    lost = [t for t in runs if not rule_set.succeeded(t)]
    outcomes = [definitions.outcome(t) for t in counted]
    return Summary(
        convention=f"{rule_set.name} {rule_set.version}",
        source=rule_set.source,
        attempted=len(runs),
        succeeded=len(counted),
        failures=dict(Counter(definitions.outcome(t).reason for t in lost)),
        notes=dict(Counter(note for o in outcomes for note in o.notes)),
        metrics={rule.name: _metric(rule, counted, rule_set) for rule in rule_set.rules},
        quantities={q.name: q for q in _quantities(runs, counted, rule_set)},
    )


def _metric(rule: Rule, counted: Sequence[Timeline], rule_set: Convention) -> Metric:
    samples = [rule.values(t) for t in counted]
    weights = None
    if rule.weights is not None:
        weights = tuple(w for t in counted for w in rule.weights(t))
    return Metric(
        name=rule.name,
        unit=rule.unit,
        definition=rule.definition,
        values=tuple(v for sample in samples for v in sample),
        undefined=sum(1 for sample in samples if not sample),
        weighting=rule.weighting,
        weights=weights,
        percentile_method=rule_set.percentile_method,
        percentile_rule=rule_set.percentile,
        requests=sum(1 for sample in samples if sample),
    )


def duration_s(timelines: Sequence[Timeline]) -> float | None:
    """First scheduled (or send) time to the last event of any request; None when not positive."""
    starts = [t.scheduled_s if t.scheduled_s is not None else t.sent_s for t in timelines]
    ends = [t.closed_s if t.closed_s is not None else _last_event_s(t) for t in timelines]
    known_starts = [s for s in starts if s is not None]
    known_ends = [e for e in ends if e is not None]
    if not known_starts or not known_ends:
        return None
    span = max(known_ends) - min(known_starts)
    return span if span > 0 else None


def _last_event_s(timeline: Timeline) -> float | None:
    events = timeline.events()
    return events[-1].t_s if events else None


def _quantities(
    runs: Sequence[Timeline], counted: Sequence[Timeline], rule_set: Convention
) -> list[Quantity]:
    span = duration_s(runs)
    tokens = [rule_set.output_tokens(t) for t in counted]
    unknown = sum(1 for n in tokens if n is None)
    total = None if unknown or not counted else sum(n for n in tokens if n is not None)
    no_span = "no data" if not counted else "the run has no measurable length"
    no_tokens = "no data" if not counted else f"{unknown} requests without a token count"
    rate = len(counted) / span if span and counted else None
    token_rate = total / span if span and total is not None else None
    return [
        Quantity("duration_s", "s", "first scheduled or send time to last close", span, no_span),
        Quantity("output_tokens", "tokens", "of the requests that succeeded", total, no_tokens),
        Quantity("request_rate", "req/s", "requests that succeeded / duration", rate, no_span),
        Quantity(
            "output_rate_tok_s",
            "tok/s",
            "output tokens of the requests that succeeded / duration",
            token_rate,
            no_tokens if total is None else no_span,
        ),
    ]
