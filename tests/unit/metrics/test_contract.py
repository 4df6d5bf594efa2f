"""The metric cases W1-W10 under this project's own contract."""

from __future__ import annotations

import math

import pytest

from turbo_lab.core.errors import TurboLabError, UsageError
from turbo_lab.metrics import definitions as d
from turbo_lab.metrics.summary import summarize
from turbo_lab.metrics.timeline import ChunkRun, Timeline, TimelineError

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
        "request_id": "q",
    }
    return Timeline(**{**facts, **overrides})


def w1() -> Timeline:
    return reply(
        (100, 0, "role"),
        (100, 1, "content"),
        (140, 2, "content"),
        (180, 2, "content"),
        (180, 0, "usage"),
        (200, None, "done"),
        usage={"prompt_tokens": 7, "completion_tokens": 5},
    )


def test_w1_one_stream_under_the_contract():
    s = summarize([w1()])
    assert s.ttft_s.values == pytest.approx([0.100])
    assert s.itl_s.values == pytest.approx([0.040, 0.040])
    assert d.itl_tokens(w1()) == (2, 2)
    assert s.tpot_s.values == pytest.approx([0.020])
    assert s.e2e_s.values == pytest.approx([0.180])
    assert s.close_s.values == pytest.approx([0.200])
    assert s.output_tokens.value == 5


def test_w2_an_empty_role_chunk_is_no_token():
    t = reply(
        (0, 0, "role"), (100, 1, "content"), (120, 1, "content"), usage={"completion_tokens": 2}
    )
    assert d.ttft_s(t) == pytest.approx(0.100)
    assert d.itl_s(t) == pytest.approx((0.020,))
    assert d.tpot_s(t) == pytest.approx(0.020)


def test_w3_one_token_has_no_tpot_and_that_is_shown():
    s = summarize([reply((50, 1, "content"), usage={"completion_tokens": 1})])
    assert s.ttft_s.mean == pytest.approx(0.050)
    assert (s.tpot_s.count, s.tpot_s.undefined, s.tpot_s.mean) == (0, 1, None)
    assert "undefined for 1 requests" in str(s.tpot_s)


def test_w7_an_error_inside_a_200_is_a_failure():
    s = summarize(
        [
            reply((50, 1, "content"), (60, None, "error"), (70, None, "done"), finish_reason=None),
            reply((50, 1, "content"), (60, None, "error"), (70, None, "done")),
        ]
    )
    assert (s.succeeded, s.failed, s.verdict) == (0, 2, "no data")
    assert s.failures == {"error inside the stream": 2}


@pytest.mark.parametrize(
    ("finish", "done", "ok", "word"),
    [
        (None, False, False, "truncated"),
        ("stop", False, True, "ok"),
        (None, True, False, "no finish_reason"),
        ("stop", True, True, "ok"),
        ("abort", True, False, "abort"),
    ],
)
def test_w8_truncated_streams(finish, done, ok, word):
    t = reply((50, 1, "content"), finish_reason=finish, saw_done=done)
    got = d.outcome(t)
    assert got.ok is ok
    assert word in got.reason
    assert got.notes == (("no [DONE]",) if ok and not done else ())


def test_w9_all_failed_is_no_data_never_zero():
    s = summarize([Timeline(sent_s=1.0, status_code=503, closed_s=2.0, error="HTTP 503: busy")] * 3)
    assert s.verdict == "no data"
    assert s.failures == {"HTTP 503": 3}
    for metric in s.metrics.values():
        assert metric.mean is metric.median is metric.p95 is metric.min is metric.max is None
    assert s.request_rate.value is None and s.output_rate_tok_s.value is None
    assert "no data" in str(s)
    assert not s.comparable
    assert summarize([]).verdict == "no data"


def test_w10_coordinated_omission_shows_from_the_schedule():
    service_ms = [100, 100, 100, 1000, 100, 100, 100, 100]
    free, runs = 0.0, []
    for index, service in enumerate(service_ms):
        due = index * 200.0
        sent = max(due, free)
        free = sent + service
        runs.append(
            Timeline(
                scheduled_s=due * MS,
                sent_s=sent * MS,
                status_code=200,
                chunks=[(free * MS, 1, "content")],
                finish_reason="stop",
                saw_done=True,
                closed_s=free * MS,
            )
        )
    s = summarize(runs)
    assert s.e2e_s.mean == pytest.approx(0.2125)
    assert s.e2e_s.p95 == pytest.approx(0.685)
    assert s.e2e_scheduled_s.mean == pytest.approx(0.5375)
    assert s.e2e_scheduled_s.p95 == pytest.approx(0.965)


def test_w13_connection_set_up_is_apart():
    first = reply((50, 1, "content"), connected_s=0.030, connection_reused=False)
    pooled = reply((20, 1, "content"), connected_s=0.0, connection_reused=True)
    s = summarize([first, pooled])
    assert s.connect_s.values == pytest.approx([0.030])
    assert s.connect_s.undefined == 1
    assert s.ttft_connected_s.values == pytest.approx([0.020, 0.020])
    assert s.ttft_s.values == pytest.approx([0.050, 0.020])


def test_chunks_without_counts_leave_tokens_unknown():
    t = reply((10, None, "content"), (20, None, "content"))
    assert d.output_tokens(t) is None
    assert d.tpot_s(t) is None
    s = summarize([t])
    assert s.output_rate_tok_s.value is None
    assert "without a token count" in str(s.output_rate_tok_s)


def test_final_usage_alone_defines_tpot_only_when_each_chunk_must_be_one_token():
    chunks = ((10, None, "content"), (20, None, "content"), (30, None, "content"))
    assert d.tpot_s(reply(*chunks, usage={"completion_tokens": 3})) == pytest.approx(0.010)
    assert d.tpot_s(reply(*chunks, usage={"completion_tokens": 4})) is None


def test_chunks_read_together_are_one_arrival_not_a_gap_of_zero():
    t = reply(
        (10, 1, "content"),
        (10, 1, "content"),
        (30, 2, "content"),
        usage={"completion_tokens": 4},
    )
    assert d.itl_s(t) == pytest.approx((0.020,))
    assert d.tpot_s(t) == pytest.approx(0.010)


def test_reasoning_and_tool_text_count_as_first_token():
    t = reply((10, 1, "reasoning"), (30, 1, "content"), (40, 1, "tool"))
    assert d.ttft_s(t) == pytest.approx(0.010)
    assert len(d.itl_s(t)) == 2


def test_tokens_before_the_first_text_are_not_in_tpot():
    t = reply(
        (10, 2, "empty"),
        (20, 1, "content"),
        (40, 1, "content"),
        usage={"completion_tokens": 4},
    )
    assert d.tpot_s(t) == pytest.approx(0.020)


@pytest.mark.parametrize(
    "broken",
    [
        {"sent_s": math.nan},
        {"closed_s": math.inf},
        {"scheduled_s": 5.0},
        {"chunks": [(0.2, 1, "content"), (0.1, 1, "content")]},
        {"chunks": [(math.nan, 1, "content"), (math.nan, 1, "content")]},
        {"chunks": [(-1.0, 1, "content")]},
        {"closed_s": 0.01},
        {"chunks": [(0.1, -1, "content")]},
        {"chunks": [(0.1, 1, "words")]},
        {"usage": {"completion_tokens": -3}},
        {"usage": {"completion_tokens": math.nan}},
        {"chunks": [ChunkRun(0.05, -0.01, 3, 1)]},
    ],
)
def test_impossible_timelines_are_refused_with_the_request_name(broken):
    good = {
        "scheduled_s": 0.0,
        "sent_s": 0.0,
        "chunks": [(0.1, 1, "content")],
        "closed_s": 0.2,
        "finish_reason": "stop",
        "request_id": "the-one",
    }
    summarize([Timeline(**good)])
    with pytest.raises(TimelineError, match="the-one") as caught:
        summarize([Timeline(**{**good, **broken})])
    assert isinstance(caught.value, TurboLabError) and isinstance(caught.value, ValueError)


def test_round_trip_through_json():
    import json

    t = reply((10, 1, "content"), usage={"completion_tokens": 1}, text="aé")
    runs = Timeline(sent_s=0.0, chunks=[ChunkRun(0.1, 0.01, 5, 1)], finish_reason="stop")
    for one in (t, runs, Timeline()):
        assert Timeline.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    with pytest.raises(TimelineError, match="unknown fields"):
        Timeline.from_dict({"sent": 1})


def test_run_length_form_gives_the_same_metrics():
    long = reply(*((100 + 10 * i, 1, "content") for i in range(50)))
    short = Timeline(
        **{**long.to_dict(), "chunks": [ChunkRun(0.1, 0.01, 50, 1)]},
    )
    a, b = summarize([long]), summarize([short])
    for name in a.metrics:
        assert a[name].values == pytest.approx(b[name].values), name


def test_unknown_convention_names_the_allowed_ones():
    with pytest.raises(UsageError, match="turbo"):
        summarize([], convention="turbi")


def test_printing_gives_unit_definition_method_and_count():
    text = str(summarize([w1()] * 3))
    for part in (
        "ttft_s [s]: send to first chunk",
        "20.0 ms",
        "n = 3",
        "linear interpolation",
        "not certified (too few samples): p50, p90, p95, p99",
        "3 attempted, 3 succeeded",
    ):
        assert part in text, part


def test_gaps_of_one_reply_certify_no_more_than_one_request():
    talkative = reply(*((100 + 10 * i, 1, "content") for i in range(32)))
    itl = summarize([talkative] * 24).itl_s
    assert (itl.count, itl.requests) == (24 * 31, 24)
    assert itl.certified(50) and not itl.certified(90)
    silent = reply((100, 1, "content"))
    assert summarize([talkative] * 64 + [silent] * 99).itl_s.certified(90)
    assert not summarize([talkative] * 63 + [silent] * 99).itl_s.certified(90)


def test_unknown_metric_name_lists_the_known_ones():
    with pytest.raises(AttributeError, match="ttft_s"):
        _ = summarize([w1()]).ttft
