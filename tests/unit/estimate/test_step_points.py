"""What is sent for a point, and what is read from its streams."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.estimate.points import (
    BunchedError,
    MeasuredStep,
    PromptSource,
    StepPoint,
    decode_grid,
    measure,
    read_point,
    requests_for,
)
from turbo_lab.metrics.timeline import Timeline

PROMPTS = PromptSource(vocab=49152, longest=1024)


def stream(start_s: float, gaps: list[float], *, tokens: int | None = 1, **changes) -> Timeline:
    times = [start_s]
    for gap in gaps:
        times.append(times[-1] + gap)
    values = {
        "sent_s": 0.0, "connected_s": 0.001, "status_code": 200,
        "chunks": tuple((t, tokens, "content") for t in times), "finish_reason": "length",
        "saw_done": True, "usage": {"completion_tokens": len(times)}, "closed_s": times[-1],
    }  # fmt: skip
    return Timeline(**{**values, **changes})


def test_decode_counts_only_steps_with_all_streams_together() -> None:
    early = stream(0.1, [0.5] * 4 + [0.02] * 30)  # slow while the other one is in its prefill
    late = stream(2.1, [0.02] * 30)
    assert read_point(StepPoint("decode", 2, 128), [early, late]) == pytest.approx(0.02)


def test_a_late_read_does_not_make_a_step_look_short() -> None:
    """One gap of 39 ms and then one of 1 ms are two steps of 20 ms, seen through a late read."""
    seen = stream(0.1, [0.02] * 6 + [0.039, 0.001] * 10)
    assert read_point(StepPoint("decode", 1, 128), [seen]) == pytest.approx(0.02, rel=0.15)


def test_the_quietest_stretch_counts() -> None:
    seen = stream(0.1, [0.2] * 10 + [0.02] * 8 + [0.2] * 10)
    assert read_point(StepPoint("decode", 1, 128), [seen]) == pytest.approx(0.02)


def test_two_tokens_in_one_chunk_are_two_steps() -> None:
    assert read_point(
        StepPoint("decode", 1, 128), [stream(0.1, [0.04] * 20, tokens=2)]
    ) == pytest.approx(0.02)


def test_tokens_that_show_no_text_are_steps_too() -> None:
    seen = stream(0.1, [0.02] * 30)
    chunks = tuple(c._replace(kind="empty") if i % 3 == 0 else c for i, c in enumerate(seen.chunks))
    half = stream(0.1, [0.02] * 30, chunks=chunks)
    assert read_point(StepPoint("decode", 1, 128), [half]) == pytest.approx(0.02)
    first = stream(0.101, [], chunks=((0.101, 1, "empty"), (0.2, None, "done")))
    assert read_point(StepPoint("prefill", 1, 64), [first]) == pytest.approx(0.1)


def test_prefill_is_the_first_token_after_the_connection() -> None:
    assert read_point(StepPoint("prefill", 1, 64), [stream(0.101, [])]) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("timelines", "reason"),
    [
        ([stream(0.1, [0.02] * 30, tokens=None)], "no token counts"),
        ([stream(0.1, [0.02] * 5)], "fewer than 8 steps"),
        ([stream(0.1, [0.02] * 30, error="cut", finish_reason=None)], "a request failed: cut"),
        ([stream(0.1, [0.02] * 30)] * 2, "2 streams came back, not 1"),
    ],
)
def test_a_point_without_a_measurement_says_why(timelines, reason: str) -> None:
    with pytest.raises(UnmeasuredError, match=reason):
        read_point(StepPoint("decode", 1, 128), timelines)


def test_prompts_are_exact_distinct_and_repeatable() -> None:
    point = StepPoint("decode", 4, 512)
    requests = requests_for(point, prompts=PROMPTS, model="lab", steps=24)
    prompts = [tuple(r.prompt) for r in requests]
    assert len(set(prompts)) == 4
    assert {len(p) for p in prompts} == {512 - 14}
    again = requests_for(point, prompts=PROMPTS, model="lab", steps=24)
    assert prompts == [tuple(r.prompt) for r in again]
    shorter = requests_for(StepPoint("decode", 4, 256), prompts=PROMPTS, model="lab")
    assert tuple(shorter[2].prompt) == prompts[2][: 256 - 14]
    first, second = (
        requests_for(StepPoint("prefill", 1, 64), prompts=PROMPTS, model="lab") for _ in range(2)
    )
    assert len(first[0].prompt) == 64 and first[0].prompt != second[0].prompt
    assert requests[0].body()["ignore_eos"] is True
    assert requests[0].path == "/v1/completions"


def test_passes_go_over_all_points_in_turn() -> None:
    seen: list[StepPoint] = []

    def send(requests, concurrency):
        assert len(requests) == concurrency
        return [stream(0.1, [0.02 + 0.001 * len(seen)] * r.max_tokens) for r in requests]

    points = [*decode_grid(batches=(1, 2), contexts=(64, 128)), StepPoint("prefill", 1, 80)]
    found = measure(points, send=send, prompts=PROMPTS, model="lab", passes=2,
                    on_point=lambda p, s: seen.append(p))  # fmt: skip
    assert seen == points * 2
    assert [m.point for m in found] == points
    assert found[0].seconds == pytest.approx(0.02) and found[0].halves is not None
    assert found[0].halves[1] > found[0].halves[0]


def test_only_points_that_disagree_are_measured_again() -> None:
    seen: list[StepPoint] = []
    calm, noisy = decode_grid(batches=(1,), contexts=(64, 128))
    gaps = {calm: [0.02] * 9, noisy: [0.09, 0.05, 0.02, 0.021, 0.02]}

    def send(requests, concurrency):
        length = len(requests[0].prompt)
        point = {64 - 12: calm, 128 - 12: noisy}.get(length)
        gap = gaps[point].pop(0) if point and requests[0].max_tokens > 2 else 0.02
        return [stream(0.1, [gap] * r.max_tokens) for r in requests]

    found = measure([calm, noisy], send=send, prompts=PROMPTS, model="lab", passes=2, retries=5,
                    on_point=lambda p, s: seen.append(p))  # fmt: skip
    assert seen == [calm, noisy, calm, noisy, noisy, noisy]
    assert [round(m.seconds, 3) for m in found] == [0.02, 0.02]


@pytest.mark.parametrize("bunches", [0, 4, 5])
def test_a_reply_in_one_bunch_is_asked_for_again_five_times_at_most(bunches: int) -> None:
    sent: list[int] = []

    def send(requests, concurrency):
        whole = len(requests[0].prompt) == 64 - 12 and requests[0].max_tokens > 2
        sent.append(whole)
        gap = 0.0 if whole and sum(sent) <= bunches else 0.02
        return [stream(0.1, [gap] * r.max_tokens) for r in requests]

    point = decode_grid(batches=(1,), contexts=(64,))
    ask = {"send": send, "prompts": PROMPTS, "model": "lab", "passes": 1}
    if bunches == 5:
        with pytest.raises(BunchedError, match="B=1 S=64: fewer than 8 steps"):
            measure(point, **ask)
    else:
        assert measure(point, **ask)[0].passes == pytest.approx((0.02,))
    assert sum(sent) == min(bunches + 1, 5)


def test_seconds_are_the_least_disturbed_pass() -> None:
    found = MeasuredStep(StepPoint("decode", 1, 128), (3.0, 1.0, 2.0, 4.0))
    assert found.seconds == 1.0
    assert found.halves == (2.0, 1.0)


@pytest.mark.parametrize("wrong", [("decode", 0, 128), ("prefill", 2, 128), ("both", 1, 128)])
def test_impossible_points_are_refused(wrong) -> None:
    with pytest.raises(UsageError):
        StepPoint(*wrong)
