"""Conventions of the benchmark scripts that come with engines, and of llmperf.

Each rule was read in the tool's public source and is applied to the raw events. Where a tool
would count tokens with its own tokenizer, the server's count stands in; where that is missing the
metric is undefined here.
"""

from __future__ import annotations

from itertools import pairwise

from turbo_lab.metrics import definitions as d
from turbo_lab.metrics.rules import Convention, Rule, SloRule, single
from turbo_lab.metrics.timeline import Timeline

CHOICE_KINDS = frozenset({"content", "reasoning", "tool", "role", "empty"})
PER_GAP = "one sample per gap"


def http_ok(timeline: Timeline) -> bool:
    """True for a 200 (or a simulated reply) whose stream was not broken in transport.

    An error event inside the stream is not a transport error: most scripts skip over it.
    """
    inside = any(c.kind == "error" for c in timeline.events())
    return timeline.status_code in (200, None) and (timeline.error is None or inside)


def times_of(timeline: Timeline, kinds: frozenset[str]) -> list[float]:
    """Arrival times of the chunks of these kinds."""
    return [c.t_s for c in timeline.events() if c.kind in kinds]


def since_sent(timeline: Timeline, t_s: float | None) -> float | None:
    """Seconds from the send to ``t_s``."""
    return None if t_s is None or timeline.sent_s is None else t_s - timeline.sent_s


def last_line_s(timeline: Timeline) -> float | None:
    """Time of the last line of the stream, [DONE] included."""
    events = timeline.events()
    if timeline.saw_done and not any(c.kind == "done" for c in events):
        return timeline.closed_s
    return events[-1].t_s if events else None


def per_token(span_s: float | None, tokens: int | None) -> float | None:
    """``span_s / (tokens - 1)``; None for one token or none."""
    if span_s is None or tokens is None or tokens <= 1:
        return None
    return span_s / (tokens - 1)


def gaps(times: list[float]) -> tuple[float, ...]:
    """Differences of neighbours."""
    return tuple(b - a for a, b in pairwise(times))


def vllm() -> Convention:
    """``vllm bench serve`` of vLLM 0.32 (benchmarks/lib/endpoint_request_func.py, serve.py).

    Every chunk with choices is a token event, the empty role chunk included; the usage chunk is
    not. TPOT is (last event - first event) / (completion tokens - 1). A 200 with at least one such
    event is a success, whatever comes later. For goodput a one-token reply has TPOT 0.
    """

    def first(t: Timeline) -> float | None:
        return since_sent(t, next(iter(times_of(t, CHOICE_KINDS)), None))

    def last(t: Timeline) -> float | None:
        return since_sent(t, (times_of(t, CHOICE_KINDS) or [None])[-1])

    def tpot(t: Timeline) -> float | None:
        start, end = first(t), last(t)
        span = None if start is None or end is None else end - start
        return per_token(span, d.output_tokens(t))

    return Convention(
        name="vllm-0.32",
        version="0.32.0",
        source="vllm/benchmarks/lib/endpoint_request_func.py, vllm/benchmarks/serve.py",
        succeeded=lambda t: http_ok(t) and bool(times_of(t, CHOICE_KINDS)),
        output_tokens=d.output_tokens,
        rules=(
            Rule("ttft_s", "send to first chunk with choices, even empty", single(first)),
            Rule(
                "itl_s",
                "gap between chunks with choices, even empty",
                lambda t: gaps(times_of(t, CHOICE_KINDS)),
                weighting=PER_GAP,
            ),
            Rule("tpot_s", "(last - first chunk with choices) / (output tokens - 1)", single(tpot)),
            Rule("e2e_s", "send to last chunk with choices", single(last)),
        ),
        slo=SloRule({"ttft": "ttft_s", "tpot": "tpot_s", "e2e": "e2e_s"}, "zero", "attempted"),
    )


def sglang() -> Convention:
    """``sglang.bench_serving`` of SGLang 0.5.23, chat endpoint (sglang/benchmark/serving.py).

    Token events are chunks with content or reasoning text. The latency is taken at every line and
    so ends at [DONE]; TPOT is (latency - TTFT) / (completion tokens - 1). A 200 that could be read
    is a success; TTFT then starts at its default 0 when no text came.
    """
    text = frozenset({"content", "reasoning"})

    def first(t: Timeline) -> float | None:
        times = times_of(t, text)
        return since_sent(t, times[0]) if times else 0.0

    def latency(t: Timeline) -> float | None:
        return since_sent(t, last_line_s(t))

    def tpot(t: Timeline) -> float | None:
        start, end = first(t), latency(t)
        span = None if start is None or end is None else end - start
        return per_token(span, d.output_tokens(t))

    return Convention(
        name="sglang",
        version="0.5.23",
        source="sglang/benchmark/serving.py",
        succeeded=lambda t: http_ok(t) and bool(t.events()),
        output_tokens=d.output_tokens,
        rules=(
            Rule("ttft_s", "send to first chunk with content or reasoning", single(first)),
            Rule(
                "itl_s",
                "gap between chunks with content or reasoning",
                lambda t: gaps(times_of(t, text)),
                weighting=PER_GAP,
            ),
            Rule("tpot_s", "(last line - TTFT) / (output tokens - 1)", single(tpot)),
            Rule("e2e_s", "send to the last line, [DONE] included", single(latency)),
        ),
    )


def llmperf() -> Convention:
    """Llmperf at f1d6bed, OpenAI chat client and token_benchmark_ray.py.

    Token events are chunks with content, the first gap being the TTFT itself. "Inter-token
    latency" is the sum of these gaps over the number of ``data:`` chunks received, the role chunk
    included. It indexes ``choices[0]``, so a usage chunk (empty choices) breaks it: it asks for
    none, and none is counted here. Latency ends with the stream. An error event fails the request.
    """
    content = frozenset({"content"})

    def first(t: Timeline) -> float | None:
        return since_sent(t, next(iter(times_of(t, content)), None))

    def itl(t: Timeline) -> float | None:
        times, received = times_of(t, content), len(times_of(t, CHOICE_KINDS))
        total = since_sent(t, times[-1]) if times else None
        return None if total is None else total / received

    return Convention(
        name="llmperf",
        version="f1d6bed",
        source="src/llmperf/ray_clients/openai_chat_completions_client.py, token_benchmark_ray.py",
        succeeded=lambda t: http_ok(t) and t.error is None and not _has_error(t),
        output_tokens=d.output_tokens,
        rules=(
            Rule("ttft_s", "send to first chunk with content", single(first)),
            Rule(
                "itl_s", "time to the last content chunk / data chunks, TTFT included", single(itl)
            ),
            Rule("e2e_s", "send to the end of the stream", single(d.close_s)),
        ),
    )


def _has_error(timeline: Timeline) -> bool:
    return any(c.kind == "error" for c in timeline.events())
