"""Conventions of independent load suites: GuideLLM, AIPerf, inference-perf, MLPerf LoadGen.

Each rule was read in the tool's public source and is applied to the raw events. Where a tool
would count tokens with its own tokenizer, the server's count stands in; where that is missing the
metric is undefined here.
"""

from __future__ import annotations

from collections.abc import Callable

from turbo_lab.metrics import definitions as d
from turbo_lab.metrics.percentiles import UPPER_RANK, WEIGHTED_CDF, upper_rank, weighted_cdf
from turbo_lab.metrics.rules import Convention, Rule, SloRule, Values, single
from turbo_lab.metrics.stream_scripts import (
    PER_GAP,
    gaps,
    http_ok,
    last_line_s,
    per_token,
    times_of,
)
from turbo_lab.metrics.timeline import VISIBLE_KINDS, Timeline


def _span_s(timeline: Timeline) -> float | None:
    """Last visible chunk minus the first."""
    times = times_of(timeline, VISIBLE_KINDS)
    return times[-1] - times[0] if times else None


def _guidellm_after_s(timeline: Timeline, end_s: float | None) -> float | None:
    """From the header's write, on a ready connection, to ``end_s``."""
    marks = [m for m in (timeline.sent_s, timeline.connected_s) if m is not None]
    return None if timeline.sent_s is None or end_s is None else end_s - max(marks)


def _guidellm_tokens(timeline: Timeline) -> int | None:
    """By usage; without it every chunk is one token."""
    reported = (timeline.usage or {}).get("completion_tokens")
    return len(timeline.visible()) or None if reported is None else int(reported)


def _guidellm_tpot_s(timeline: Timeline) -> float | None:
    span = _guidellm_after_s(timeline, d.last_visible_s(timeline))
    count = _guidellm_tokens(timeline)
    return span / count if span is not None and count else None


def _guidellm_itl_s(timeline: Timeline) -> float | None:
    return per_token(_span_s(timeline), _guidellm_tokens(timeline))


def _guidellm_weights(
    value: Callable[[Timeline], float | None], *, less: int
) -> Callable[[Timeline], Values]:
    """Output tokens minus ``less`` as the weight of each request that has the value."""

    def weights(timeline: Timeline) -> Values:
        if value(timeline) is None:
            return ()
        return (float((_guidellm_tokens(timeline) or 0) - less),)

    return weights


def guidellm() -> Convention:
    """GuideLLM 0.8.1 (schemas/base/request_stats.py, statistics.py, backends/openai/http.py).

    A request starts when its header is written, on a ready connection, and ends at [DONE]. TPOT is
    (last token - start) / output tokens: it includes TTFT; its mean is weighted by tokens. ITL is
    (last - first token) / (output tokens - 1), one value per request, weighted by tokens - 1.
    Without usage every chunk is one token. An error event or a reply without text is an error.
    Goodput leaves requests without the metric out and counts errors as misses.
    """
    first = single(lambda t: _guidellm_after_s(t, d.first_visible_s(t)))
    whole = single(lambda t: _guidellm_after_s(t, last_line_s(t) if t.saw_done else t.closed_s))
    return Convention(
        name="guidellm",
        version="0.8.1",
        source="guidellm/schemas/base/request_stats.py, guidellm/schemas/base/statistics.py",
        succeeded=lambda t: http_ok(t) and t.error is None and bool(t.visible()),
        output_tokens=_guidellm_tokens,
        rules=(
            Rule("ttft_s", "header written to first chunk with text", first),
            Rule(
                "tpot_s",
                "(last text - start) / output tokens, TTFT included",
                single(_guidellm_tpot_s),
                weighting="weighted by output tokens",
                weights=_guidellm_weights(_guidellm_tpot_s, less=0),
            ),
            Rule(
                "itl_s",
                "(last - first text) / (output tokens - 1), one value per request",
                single(_guidellm_itl_s),
                weighting="weighted by output tokens - 1",
                weights=_guidellm_weights(_guidellm_itl_s, less=1),
            ),
            Rule("e2e_s", "start to [DONE] or the end of the stream", whole),
        ),
        percentile_method=WEIGHTED_CDF,
        percentile=weighted_cdf,
        slo=SloRule({"ttft": "ttft_s", "tpot": "itl_s", "e2e": "e2e_s"}, "excluded", "attempted"),
    )


def aiperf() -> Convention:
    """AIPerf 0.13.0 (aiperf/metrics/types/*.py), without ``--per-chunk-usage``.

    Content responses are chunks with content, reasoning or tool text. Its "inter token latency" is
    one value per request, (request latency - TTFT) / (output tokens - 1), undefined below two
    tokens; gaps between chunks are "inter chunk latency". Good requests have every metric of the
    objectives and meet it: a one-token reply can never be good where ITL is an objective.
    """

    def itl(t: Timeline) -> float | None:
        return per_token(_span_s(t), d.output_tokens(t))

    return Convention(
        name="aiperf",
        version="0.13.0",
        source="aiperf/metrics/types/inter_token_latency_metric.py and its neighbours",
        succeeded=lambda t: http_ok(t) and t.error is None and bool(t.visible()),
        output_tokens=d.output_tokens,
        rules=(
            Rule("ttft_s", "send to first chunk with text", single(d.ttft_s)),
            Rule(
                "itl_s",
                "(last - first text) / (output tokens - 1), one value per request",
                single(itl),
            ),
            Rule(
                "icl_s",
                "gap between chunks with text",
                lambda t: gaps(times_of(t, VISIBLE_KINDS)),
                weighting=PER_GAP,
            ),
            Rule("e2e_s", "send to last chunk with text", single(d.e2e_s)),
        ),
        slo=SloRule({"ttft": "ttft_s", "tpot": "itl_s", "e2e": "e2e_s"}, "missed", "attempted"),
    )


def _content_token_times(timeline: Timeline) -> list[float]:
    """One time per token of the content chunks; per chunk where the counts are unknown."""
    chunks = [c for c in timeline.events() if c.kind == "content"]
    if any(c.tokens is None for c in chunks):
        return [c.t_s for c in chunks]
    return [c.t_s for c in chunks for _ in range(c.tokens or 0)]


def _iperf_ttft_s(timeline: Timeline) -> float | None:
    times, sent = _content_token_times(timeline), timeline.sent_s
    return times[0] - sent if len(times) > 1 and sent is not None else None


def _iperf_tpot_s(timeline: Timeline) -> float | None:
    times = _content_token_times(timeline)
    return per_token(times[-1] - times[0], d.output_tokens(timeline)) if len(times) > 1 else None


def _iperf_ntpot_s(timeline: Timeline) -> float | None:
    whole, count = d.close_s(timeline), d.output_tokens(timeline)
    return whole / count if whole is not None and count else None


def inference_perf() -> Convention:
    """inference-perf at 7de5ef2, after 0.6.1 (inference_perf/reportgen/base.py, apis/).

    Only chunks with content count. Each token gets its chunk's time, so ITL is 0 inside a chunk.
    TTFT and TPOT need more than one token. TPOT is (last - first) / (output tokens - 1), NTPOT is
    the whole request / output tokens, latency ends with the stream. Errors inside a 200 are skipped
    over. Goodput is a share of the requests that succeeded; a missing metric is a miss.
    """
    slo = {"ttft": "ttft_s", "tpot": "tpot_s", "ntpot": "ntpot_s", "e2e": "e2e_s"}
    return Convention(
        name="inference-perf",
        version="7de5ef2",
        source="inference_perf/reportgen/base.py, inference_perf/apis/streaming_parser.py",
        succeeded=http_ok,
        output_tokens=d.output_tokens,
        rules=(
            Rule("ttft_s", "send to first content, of two tokens or more", single(_iperf_ttft_s)),
            Rule(
                "itl_s",
                "gap between tokens, 0 inside a chunk",
                lambda t: gaps(_content_token_times(t)),
                weighting=PER_GAP,
            ),
            Rule("tpot_s", "(last - first content) / (output tokens - 1)", single(_iperf_tpot_s)),
            Rule("ntpot_s", "send to the stream's end / output tokens", single(_iperf_ntpot_s)),
            Rule("e2e_s", "send to the end of the stream", single(d.close_s)),
        ),
        slo=SloRule(slo, "missed", "succeeded"),
    )


def loadgen() -> Convention:
    """MLPerf LoadGen 6.0.17, server scenario with token latencies (loadgen/logging.cc, results.cc).

    All latencies run from the scheduled time. TPOT is (completion - first token) / (tokens - 1);
    one token is a run-time error there, so it is undefined here. Percentiles are the sorted value
    at index int(n p), without interpolation. A sample must complete: failures have no number.
    """

    def tpot(t: Timeline) -> float | None:
        return per_token(_span_s(t), d.output_tokens(t))

    return Convention(
        name="loadgen",
        version="6.0.17",
        source="mlcommons/inference loadgen/logging.cc, loadgen/results.cc",
        succeeded=lambda t: d.outcome(t).ok and bool(t.visible()),
        output_tokens=d.output_tokens,
        rules=(
            Rule("ttft_s", "scheduled time to first text", single(d.ttft_scheduled_s)),
            Rule("tpot_s", "(last - first text) / (output tokens - 1)", single(tpot)),
            Rule("e2e_s", "scheduled time to last text", single(d.e2e_scheduled_s)),
        ),
        percentile_method=UPPER_RANK,
        percentile=upper_rank,
    )
