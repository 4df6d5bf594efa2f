"""Any order of events a server could produce: finite or undefined, never negative, no false 0."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.metrics.conventions import conventions
from turbo_lab.metrics.summary import summarize
from turbo_lab.metrics.timeline import Timeline

KINDS = ("content", "reasoning", "tool", "role", "empty", "usage", "error", "done", "other")
# Gaps of 0 happen: several events in one read. The first event comes after the send.
GAP_S = st.one_of(st.just(0.0), st.floats(1e-6, 10))


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    sent = draw(st.floats(0, 1e5))
    scheduled = draw(st.one_of(st.none(), st.just(sent), st.floats(0, 1e5).map(lambda x: x)))
    if scheduled is not None and scheduled > sent:
        scheduled, sent = sent, scheduled
    now = sent + draw(st.floats(1e-6, 10))
    connected = draw(st.one_of(st.none(), st.floats(sent, now)))
    chunks = []
    for kind in draw(st.lists(st.sampled_from(KINDS), max_size=12)):
        chunks.append((now, draw(st.one_of(st.none(), st.integers(0, 20))), kind))
        now += draw(GAP_S)
    usage = draw(
        st.one_of(
            st.none(),
            st.just({}),
            st.fixed_dictionaries(
                {
                    "completion_tokens": st.one_of(st.none(), st.integers(0, 200)),
                    "prompt_tokens": st.one_of(st.none(), st.integers(0, 200)),
                }
            ),
        )
    )
    return Timeline(
        scheduled_s=scheduled,
        sent_s=draw(st.sampled_from([sent, sent, sent, None])),
        connected_s=connected,
        status_code=draw(st.sampled_from([200, 200, 200, 503, None])),
        chunks=chunks,
        finish_reason=draw(st.sampled_from(["stop", "stop", "length", None, "abort"])),
        saw_done=draw(st.booleans()),
        usage=usage,
        closed_s=draw(st.sampled_from([now, None])),
        error=draw(st.sampled_from([None, None, None, "timed out after 1 s"])),
        connection_reused=draw(st.sampled_from([True, False, None])),
    )


def zero_allowed(name: str) -> bool:
    """A client that sends on time has no lag: the one time that can truly be 0."""
    return name == "dispatch_lag_s"


@settings(max_examples=150, deadline=None)
@given(st.lists(timelines(), max_size=5))
def test_the_contract_never_gives_negative_infinite_or_false_zero(runs):
    summary = summarize(runs)
    for name, metric in summary.metrics.items():
        for value in metric.values:
            assert math.isfinite(value), name
            assert value > 0 or (value == 0 and zero_allowed(name)), (name, value)
        for number in (metric.mean, metric.median, metric.p95, metric.max):
            assert (number is None) == (metric.count == 0), name
    for quantity in summary.quantities.values():
        assert quantity.value is None or (math.isfinite(quantity.value) and quantity.value >= 0)
        if not summary.succeeded and quantity.name != "duration_s":
            assert quantity.value is None, quantity.name
    assert summary.succeeded + summary.failed == summary.attempted == len(runs)
    assert sum(summary.failures.values()) == summary.failed
    assert str(summary)


@settings(max_examples=120, deadline=None)
@given(st.lists(timelines(), max_size=3), st.sampled_from(sorted(conventions())))
def test_every_convention_survives_every_stream(runs, name):
    summary = summarize(runs, convention=name)
    for metric in summary.metrics.values():
        assert all(math.isfinite(v) and v >= 0 for v in metric.values)
    assert str(summary)
    summary.to_dict()


@settings(max_examples=60, deadline=None)
@given(timelines(), st.floats(0, 1e4))
def test_metrics_do_not_depend_on_where_the_clock_starts(timeline, shift):
    import dataclasses

    def move(t: float | None) -> float | None:
        return None if t is None else t + shift

    moved = dataclasses.replace(
        timeline,
        scheduled_s=move(timeline.scheduled_s),
        sent_s=move(timeline.sent_s),
        connected_s=move(timeline.connected_s),
        closed_s=move(timeline.closed_s),
        chunks=[(c.t_s + shift, c.tokens, c.kind) for c in timeline.events()],
    )
    a, b = summarize([timeline]), summarize([moved])
    assert (a.succeeded, a.failures) == (b.succeeded, b.failures)
    for name in ("ttft_s", "e2e_s", "close_s"):
        assert len(a[name].values) == len(b[name].values)
        for x, y in zip(a[name].values, b[name].values, strict=True):
            assert abs(x - y) < 1e-6
