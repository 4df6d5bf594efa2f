"""The project's own convention and those of public tools, by name."""

from __future__ import annotations

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.metrics import definitions as d
from turbo_lab.metrics.rules import Convention, Rule, single
from turbo_lab.metrics.timeline import Timeline


def _turbo_succeeded(timeline: Timeline) -> bool:
    return d.outcome(timeline).ok


def turbo() -> Convention:
    """This project's contract (``turbo_lab.metrics.definitions``)."""
    return Convention(
        name="turbo",
        version="1",
        source="turbo_lab/metrics/definitions.py",
        succeeded=_turbo_succeeded,
        output_tokens=d.output_tokens,
        rules=(
            Rule(
                "ttft_s",
                "s",
                "send to first chunk with content, reasoning or tool text",
                single(d.ttft_s),
            ),
            Rule(
                "ttft_scheduled_s",
                "s",
                "scheduled time to first chunk with text (waiting in the client included)",
                single(d.ttft_scheduled_s),
            ),
            Rule(
                "ttft_connected_s",
                "s",
                "connection ready to first chunk with text (set-up excluded)",
                single(d.ttft_connected_s),
            ),
            Rule(
                "itl_s",
                "s",
                "gap between arrivals of text, whatever tokens each brings",
                d.itl_s,
                weighting="one sample per gap",
            ),
            Rule(
                "tpot_s",
                "s",
                "(last text - first text) / (output tokens - tokens of the first chunk)",
                single(d.tpot_s),
            ),
            Rule("e2e_s", "s", "send to last chunk with text", single(d.e2e_s)),
            Rule(
                "e2e_scheduled_s",
                "s",
                "scheduled time to last chunk with text",
                single(d.e2e_scheduled_s),
            ),
            Rule("close_s", "s", "send to the close of the stream", single(d.close_s)),
            Rule(
                "connect_s",
                "s",
                "connection set-up, only requests that opened a connection",
                single(d.connect_s),
            ),
            Rule(
                "dispatch_lag_s",
                "s",
                "scheduled time to send (the client's own lateness)",
                single(d.dispatch_lag_s),
            ),
        ),
    )


def conventions() -> dict[str, Convention]:
    """All conventions by name."""
    return {c.name: c for c in (turbo(),)}


def convention(name: str) -> Convention:
    """The convention called ``name``. Raises UsageError with the allowed names."""
    known = conventions()
    if name not in known:
        raise UsageError(f"convention is {name!r}.{did_you_mean(name, list(known))}")
    return known[name]
