"""W1-W4, W6, W7, W9 under the rules of public tools."""

from __future__ import annotations

import pytest

from turbo_lab.metrics.conventions import conventions
from turbo_lab.metrics.goodput import attainment
from turbo_lab.metrics.summary import summarize
from turbo_lab.metrics.timeline import Timeline

MS = 1e-3


def reply(*chunks, **overrides) -> Timeline:
    """A complete reply; chunk times in ms after the send at 0."""
    facts = {
        "scheduled_s": 0.0,
        "sent_s": 0.0,
        "status_code": 200,
        "chunks": [(t * MS, tokens, kind) for t, tokens, kind in chunks],
        "finish_reason": "stop",
        "saw_done": True,
        "closed_s": max((c[0] for c in chunks), default=0) * MS,
    }
    return Timeline(**{**facts, **overrides})


def w1(*, usage_chunk: bool = True) -> Timeline:
    chunks = [(100, 0, "role"), (100, 1, "content"), (140, 2, "content"), (180, 2, "content")]
    chunks += [(180, 0, "usage")] if usage_chunk else []
    usage = {"completion_tokens": 5}
    return reply(*chunks, (200, None, "done"), usage=usage if usage_chunk else None)


def ms(timelines, convention: str, name: str) -> list[float]:
    return [1e3 * v for v in summarize(timelines, convention=convention)[name].values]


W1 = [
    ("turbo", {"ttft_s": [100], "itl_s": [40, 40], "tpot_s": [20], "e2e_s": [180]}),
    ("vllm-0.32", {"ttft_s": [100], "itl_s": [0, 40, 40], "tpot_s": [20], "e2e_s": [180]}),
    ("sglang", {"ttft_s": [100], "itl_s": [40, 40], "tpot_s": [25], "e2e_s": [200]}),
    ("guidellm", {"ttft_s": [100], "tpot_s": [36], "itl_s": [20], "e2e_s": [200]}),
    ("aiperf", {"ttft_s": [100], "itl_s": [20], "icl_s": [40, 40], "e2e_s": [180]}),
    ("inference-perf", {"ttft_s": [100], "itl_s": [40, 0, 40, 0], "tpot_s": [20]}),
    ("loadgen", {"ttft_s": [100], "tpot_s": [20], "e2e_s": [180]}),
]


@pytest.mark.parametrize(("name", "want"), W1)
def test_w1(name, want):
    for metric, values in want.items():
        assert ms([w1()], name, metric) == pytest.approx(values), metric


def test_w1_llmperf_without_the_usage_chunk():
    assert ms([w1(usage_chunk=False)], "llmperf", "itl_s") == pytest.approx([45])


def test_w1_without_done_chunk_the_close_stands_for_it():
    timeline = Timeline(
        **{**w1().to_dict(), "chunks": [c for c in w1().chunks if c.kind != "done"]}
    )
    assert ms([timeline], "sglang", "e2e_s") == pytest.approx([200])
    assert ms([timeline], "guidellm", "e2e_s") == pytest.approx([200])


def test_w2_the_empty_role_chunk():
    t = reply(
        (0, 0, "role"), (100, 1, "content"), (120, 1, "content"), usage={"completion_tokens": 2}
    )
    assert ms([t], "vllm-0.32", "ttft_s") == pytest.approx([0])
    assert ms([t], "vllm-0.32", "itl_s") == pytest.approx([100, 20])
    assert ms([t], "vllm-0.32", "tpot_s") == pytest.approx([120])
    assert ms([t], "turbo", "ttft_s") == pytest.approx([100])
    assert ms([t], "turbo", "itl_s") == pytest.approx([20])


@pytest.mark.parametrize("name", sorted(conventions()))
def test_w3_no_tool_divides_by_zero_on_one_token(name):
    t = reply((50, 1, "content"), (60, None, "done"), usage={"completion_tokens": 1})
    s = summarize([t], convention=name)
    assert s.succeeded == 1
    if name != "guidellm" and "tpot_s" in s.metrics:
        assert s.tpot_s.values == ()


@pytest.mark.parametrize(
    ("name", "counts_it"),
    [
        ("turbo", False),
        ("vllm-0.32", True),
        ("sglang", True),
        ("inference-perf", True),
        ("llmperf", False),
        ("guidellm", False),
        ("loadgen", False),
    ],
)
def test_w7_error_inside_a_200(name, counts_it):
    t = reply(
        (50, 1, "content"),
        (60, None, "error"),
        (70, None, "done"),
        finish_reason=None,
        error="the server sent an error in the stream",
    )
    assert summarize([t], convention=name).succeeded == int(counts_it)


@pytest.mark.parametrize("name", sorted(conventions()))
@pytest.mark.parametrize(
    "failed",
    [
        Timeline(sent_s=0.0, status_code=503, closed_s=1.0, error="HTTP 503: busy"),
        Timeline(sent_s=0.0, closed_s=1.0, error="cannot connect"),
        Timeline(sent_s=0.0, status_code=200, closed_s=1.0, error="timed out after 1 s"),
    ],
)
def test_w9_failures_give_no_numbers_under_any_rule(name, failed):
    s = summarize([failed] * 2, convention=name)
    assert s.verdict == "no data"
    assert all(m.mean is None for m in s.metrics.values())


def w4() -> list[Timeline]:
    def run(ttft_ms: float, gap_ms: float, tokens: int) -> Timeline:
        chunks = [(ttft_ms + i * gap_ms, 1, "content") for i in range(tokens)]
        return reply(*chunks, usage={"completion_tokens": tokens})

    failed = Timeline(sent_s=0.0, status_code=500, closed_s=0.1, error="HTTP 500: x")
    return [*[run(100, 20, 5)] * 6, run(100, 0, 1), run(400, 20, 5), failed, failed]


@pytest.mark.parametrize(
    ("name", "rate", "attained", "counted"),
    [
        ("turbo", 0.7, 7, 10),
        ("vllm-0.32", 0.7, 7, 10),
        ("aiperf", 0.6, 6, 10),
        ("inference-perf", 0.6, 6, 8),
        ("guidellm", 0.6, 6, 9),
    ],
)
def test_w4_goodput(name, rate, attained, counted):
    got = attainment(w4(), slo={"ttft": 0.25, "tpot": 0.05}, convention=name, duration_s=10)
    assert (got.attained, got.counted) == (attained, counted)
    assert got.goodput_req_s == pytest.approx(rate)
    assert got.share == pytest.approx(attained / counted)
    assert got.not_applicable["tpot"] == 1


def w6() -> list[Timeline]:
    def run(tokens: int, gap_ms: float) -> Timeline:
        chunks = [(1000 + i * gap_ms, 1, "content") for i in range(tokens)]
        return reply(*chunks, usage={"completion_tokens": tokens})

    return [run(5, 200), run(20, 100)]


def test_w6_weighting_is_said():
    ours = summarize(w6())
    assert ours.tpot_s.mean == pytest.approx(0.150)
    assert ours.tpot_s.weighting == "one sample per request"
    assert ours.itl_s.mean == pytest.approx(0.11739, abs=1e-5)
    assert ours.itl_s.weighting == "one sample per gap"
    guide = summarize(w6(), convention="guidellm")
    assert guide.itl_s.mean == pytest.approx(0.11739, abs=1e-5)
    assert guide.itl_s.weighting == "weighted by output tokens - 1"


def test_w6_token_weights():
    tpot = summarize(w6()).tpot_s
    assert tpot.weighted_mean([5, 20]) == pytest.approx(0.120)
    assert tpot.weighted_mean([4, 19]) == pytest.approx(0.11739, abs=1e-5)


def test_loadgen_percentile_takes_an_order_statistic():
    runs = [reply((10 * (i + 1), 2, "content"), usage={"completion_tokens": 2}) for i in range(10)]
    assert summarize(runs, convention="loadgen").ttft_s.percentile(50) == pytest.approx(0.060)
    assert summarize(runs).ttft_s.percentile(50) == pytest.approx(0.055)


def test_guidellm_percentile_is_weighted():
    p50 = summarize(w6(), convention="guidellm").itl_s.percentile(50)
    assert p50 == pytest.approx(0.100)


def test_every_convention_names_its_source_and_version():
    for name, rules in conventions().items():
        text = str(summarize([w1()], convention=name))
        assert rules.version in text and rules.source in text
