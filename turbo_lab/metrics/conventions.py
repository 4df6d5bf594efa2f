"""The project's own convention and those of public tools, by name."""

from __future__ import annotations

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.metrics import definitions as d
from turbo_lab.metrics import load_suites, stream_scripts
from turbo_lab.metrics.rules import Convention, Rule, SloRule
from turbo_lab.metrics.rules import single as one
from turbo_lab.metrics.timeline import Timeline


def _turbo_succeeded(timeline: Timeline) -> bool:
    return d.outcome(timeline).ok


def _turbo_rules() -> tuple[Rule, ...]:
    tpot = "(last text - first text) / (output tokens - tokens of the first chunk)"
    per_gap = "one sample per gap"
    return (
        Rule("ttft_s", "send to first chunk with content, reasoning or tool text", one(d.ttft_s)),
        Rule("ttft_scheduled_s", "scheduled time to first text", one(d.ttft_scheduled_s)),
        Rule("ttft_connected_s", "connection ready to first chunk", one(d.ttft_connected_s)),
        Rule("itl_s", "gap between arrivals, whatever each brings", d.itl_s, weighting=per_gap),
        Rule("tpot_s", tpot, one(d.tpot_s)),
        Rule("e2e_s", "send to last chunk with text", one(d.e2e_s)),
        Rule("e2e_scheduled_s", "scheduled time to last chunk with text", one(d.e2e_scheduled_s)),
        Rule("close_s", "send to the close of the stream", one(d.close_s)),
        Rule("connect_s", "connection set-up, only where one was opened", one(d.connect_s)),
        Rule("dispatch_lag_s", "scheduled time to send: the client's lag", one(d.dispatch_lag_s)),
    )


def turbo() -> Convention:
    """This project's contract (``turbo_lab.metrics.definitions``).

    Objectives are checked on all attempted requests: a failed one misses, a TPOT objective does
    not apply to a reply of one chunk.
    """
    names = ("ttft", "ttft_scheduled", "tpot", "e2e", "e2e_scheduled")
    return Convention(
        name="turbo",
        version="1",
        source="turbo_lab/metrics/definitions.py",
        succeeded=_turbo_succeeded,
        output_tokens=d.output_tokens,
        rules=_turbo_rules(),
        slo=SloRule({name: f"{name}_s" for name in names}, "not applicable", "attempted"),
    )


def conventions() -> dict[str, Convention]:
    """All conventions by name."""
    makers = (
        turbo,
        stream_scripts.vllm,
        stream_scripts.sglang,
        stream_scripts.llmperf,
        load_suites.guidellm,
        load_suites.aiperf,
        load_suites.inference_perf,
        load_suites.loadgen,
    )
    return {c.name: c for c in (make() for make in makers)}


def convention(name: str) -> Convention:
    """The convention called ``name``. Raises UsageError with the allowed names."""
    known = conventions()
    if name not in known:
        raise UsageError(f"convention is {name!r}.{did_you_mean(name, list(known))}")
    return known[name]
