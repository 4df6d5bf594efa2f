"""From the requests of a run to the measurements of its record, with all samples."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from turbo_lab.experiment.metric_names import PER_REQUEST, PER_WINDOW
from turbo_lab.experiment.plan import BenchPlan
from turbo_lab.metrics import definitions
from turbo_lab.metrics.conventions import turbo
from turbo_lab.metrics.goodput import attainment
from turbo_lab.metrics.summary import duration_s
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.records.schema import Measurement

WINDOWS = 10
SPREAD = "each request's share spread evenly over its life"
ITL_DEFINITION = "median gap between arrivals of one request"


def measurements(plan: BenchPlan, timelines: Sequence[Timeline]) -> tuple[Measurement, ...]:
    """Per-request metrics in the order of the requests (None where failed or undefined), then
    rates over equal stretches of the run.
    """
    definition = {rule.name: rule.definition for rule in turbo().rules}
    definition["itl_s"] = ITL_DEFINITION
    found = [_per_request(name, definition[name], timelines) for name in PER_REQUEST]
    return (*found, *_rates(plan, timelines))


def _per_request(name: str, definition: str, timelines: Sequence[Timeline]) -> Measurement:
    rule = turbo().rule(name)
    samples = []
    for timeline in timelines:
        values = rule.values(timeline) if definitions.outcome(timeline).ok else ()
        samples.append(statistics.median(values) if values else None)
    return measurement(name, "s", definition, samples)


def measurement(
    name: str, unit: str, definition: str, samples: Sequence[float | None], *, why: str = ""
) -> Measurement:
    """A Measurement by the median of the samples that exist."""
    known = [v for v in samples if v is not None]
    reason = why or ("no data: no request succeeded" if not samples else "undefined here")
    return Measurement(
        name=name,
        unit=unit,
        definition=definition,
        statistic="median",
        value=statistics.median(known) if known else None,
        reason=None if known else reason,
        samples=tuple(samples),
        earlier=(),
    )


Amount = tuple[float, float, float]  # start in s, end in s, how much in between


def _rates(plan: BenchPlan, timelines: Sequence[Timeline]) -> list[Measurement]:
    good = [t for t in timelines if definitions.outcome(t).ok]
    span = busy_span(timelines)
    texts = {
        "output_rate_tok_s": "output tokens / time, in each tenth of the run",
        "request_rate_req_s": "requests that succeeded / time, in each tenth of the run",
        "goodput_req_s": "requests within all objectives / time, in each tenth of the run",
    }
    met = [t for t in good if plan.slo and attainment([t], slo=plan.slo).attained]
    work = {
        "output_rate_tok_s": _amounts(good, definitions.output_tokens),
        "request_rate_req_s": _amounts(good, lambda _: 1),
        "goodput_req_s": _amounts(met, lambda _: 1) if plan.slo else None,
    }
    reasons = {
        "output_rate_tok_s": "the server does not count output tokens",
        "goodput_req_s": "no objective was given (--slo)",
    }
    out = []
    for name in PER_WINDOW:
        found = work[name]
        rates = windows(found, span) if found is not None and span and good else []
        why = "no data: no request succeeded" if not good else reasons.get(name, "no length")
        unit = "tok/s" if name == "output_rate_tok_s" else "req/s"
        out.append(measurement(name, unit, f"{texts[name]} ({SPREAD})", rates, why=why))
    return out


def busy_span(timelines: Sequence[Timeline]) -> tuple[float, float] | None:
    """First scheduled or send time and last close of a run."""
    length = duration_s(timelines)
    ends = [t.closed_s for t in timelines if t.closed_s is not None]
    return (max(ends) - length, max(ends)) if length and ends else None


def _amounts(
    good: Sequence[Timeline], count: Callable[[Timeline], int | None]
) -> list[Amount] | None:
    """What each request delivered, over its life; None when one is unknown."""
    out: list[Amount] = []
    for timeline in good:
        amount = count(timeline)
        if amount is None:
            return None
        if timeline.sent_s is not None and timeline.closed_s is not None:
            out.append((timeline.sent_s, timeline.closed_s, float(amount)))
    return out


def windows(
    work: Sequence[Amount], span: tuple[float, float], *, count: int = WINDOWS
) -> list[float]:
    """The work that falls into each of ``count`` equal stretches of the span, per second.

    A request's work is spread evenly over its life: counted at single moments, requests that end
    in step would fill one stretch and leave the next empty.
    """
    start, end = span
    width = (end - start) / count
    if width <= 0:
        return []
    sums = [0.0] * count
    for begin, stop, amount in work:
        first = min(max(int((begin - start) / width), 0), count - 1)
        last = min(max(int((stop - start) / width), 0), count - 1)
        life = stop - begin
        for place in range(first, last + 1):
            low, high = start + place * width, start + (place + 1) * width
            share = (min(stop, high) - max(begin, low)) / life if life > 0 else 1.0
            sums[place] += amount * max(0.0, share)
    return [total / width for total in sums]
