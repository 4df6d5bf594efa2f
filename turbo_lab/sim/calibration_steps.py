"""Engine steps seen from outside: what each step of a load held, and how long it took.

An engine step gives every running sequence one token, so the tokens that arrive together are one
step. Between two of them the engine was busy without a pause if some sequence went on; then the gap
is the time of the second step. A step that began on an idle engine began when its request came.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.estimate.points import token_marks
from turbo_lab.metrics.definitions import outcome
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.sim.calibration import prefill_pairs

APART = 0.35  # of the usual gap: tokens closer than this belong to one step


@dataclass(frozen=True)
class StepSample:
    """One step: its seconds and what was in it (the letters of ``Calibration``).

    ``alone``: the engine was idle before, so ``seconds`` is from sending to the first token and
    holds the request's overhead too.
    """

    seconds: float
    prefill_tokens: int
    pairs: float
    decode_sequences: int
    context_tokens: int
    alone: bool = False


@dataclass
class _Step:
    """Tokens that arrived together: stream to how many it had before."""

    first_s: float
    last_s: float
    streams: dict[int, int] = field(default_factory=dict)
    whole: bool = True


@dataclass(frozen=True)
class _Stream:
    """One request: prompt length, when it was sent, (time, tokens so far) of each arrival."""

    prompt: int
    sent_s: float
    marks: tuple[tuple[float, int], ...]

    @property
    def tokens(self) -> int:
        return self.marks[-1][1]


def step_samples(
    timelines: Sequence[Timeline], *, apart_s: float | None = None
) -> list[StepSample]:
    """The steps of one load that can be read without doubt, in order.

    Left out are steps in which a running sequence has no token (a chunk of a longer prompt, a
    preemption) or two at once (the server joined them), and those that began on an idle engine with
    more than one request. Prompts must not be cached and must fit into one step.

    Args:
        timelines: all requests of the load.
        apart_s: tokens further apart belong to two steps; default: a third of the usual gap.

    Raises:
        UnmeasuredError: a request failed, the server gave no token counts, or no two tokens came.
    """
    streams = [_stream(timeline) for timeline in timelines]
    apart_s = apart_s or APART * usual_gap_s(timelines)
    steps = list(_steps(streams, apart_s))
    found = (_sample(a, b, streams, apart_s) for a, b in pairwise([None, *steps]))
    return [sample for sample in found if sample is not None]


def usual_gap_s(timelines: Sequence[Timeline]) -> float:
    """Median time between two tokens of a reply. Raises UnmeasuredError where there is none."""
    marks = [token_marks(t, what=t.request_id or "a request") for t in timelines]
    gaps = [b[0] - a[0] for m in marks for a, b in pairwise(m)]
    if not gaps:
        raise UnmeasuredError("no reply had two tokens: there are no steps to see")
    return statistics.median(gaps)


def _stream(timeline: Timeline) -> _Stream:
    name = timeline.request_id or "a request"
    if not (state := outcome(timeline)).ok:
        raise UnmeasuredError(f"{name} failed: {timeline.error or state.reason}")
    prompt = (timeline.usage or {}).get("prompt_tokens") or timeline.labels.get("input_tokens")
    if not prompt or timeline.sent_s is None:
        raise UnmeasuredError(f"{name}: the length of its prompt or its send time is unknown")
    sent_s = max(timeline.sent_s, timeline.connected_s or timeline.sent_s)
    return _Stream(int(prompt), sent_s, tuple(token_marks(timeline, what=name)))


def _steps(streams: Sequence[_Stream], apart_s: float) -> Iterator[_Step]:
    """Arrivals joined to steps: a stream that comes again, or a pause, begins a new one."""
    events = sorted(
        (when, index, before, tokens)
        for index, stream in enumerate(streams)
        for (_, before), (when, tokens) in pairwise([(0.0, 0), *stream.marks])
    )
    step: _Step | None = None
    for when, index, before, tokens in events:
        if step is None or index in step.streams or when - step.last_s > apart_s:
            if step is not None:
                yield step
            step = _Step(when, when)
        step.streams[index] = before
        step.last_s = when
        step.whole &= tokens - before == 1
    if step is not None:
        yield step


def _sample(
    before: _Step | None, step: _Step, streams: Sequence[_Stream], apart_s: float
) -> StepSample | None:
    if not step.whole:
        return None
    going = (
        set()
        if before is None
        else {i for i, had in before.streams.items() if had + 1 < streams[i].tokens}
    )
    new = [i for i, had in step.streams.items() if had == 0]
    old = {i: had for i, had in step.streams.items() if had}
    if before is not None and (not before.whole or going != set(old)):
        return None
    prompts, sent = [streams[i].prompt for i in new], [streams[i].sent_s for i in new]
    content = (
        sum(prompts),
        sum(prefill_pairs(p) for p in prompts),
        len(old),
        sum(streams[i].prompt + had for i, had in old.items()),
    )
    if before is not None and (going or max(sent) < before.first_s - apart_s):
        return StepSample(step.first_s - before.first_s, *content)
    if len(new) == 1 and not old and (before is None or sent[0] > before.last_s):
        return StepSample(step.first_s - sent[0], *content, alone=True)
    return None
