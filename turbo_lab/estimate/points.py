"""Step times as a client can measure them: which requests to send, and how to read the streams.

Decode: B streams run together; counted is only the time in which all B are between their first and
their last token, so that no step there holds a prefill. Prefill: one request alone, its time to
first token. Prompts are token ids of exact length, distinct, so that no prefix cache can help.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.metrics.definitions import outcome
from turbo_lab.metrics.timeline import VISIBLE_KINDS, Timeline
from turbo_lab.workload.request import Request

Phase = Literal["decode", "prefill"]
Value = TypeVar("Value")
Send = Callable[[Sequence[Request], int], Sequence[Timeline]]
QUIET_STEPS = 8
SETTLED = 0.10
BUNCHED_TRIES = 5
FIRST_TOKEN_ID = 1000  # below lie the special tokens


class BunchedError(UnmeasuredError):
    """Tokens came in bunches or streams one after the other: no step can be read from them."""


@dataclass(frozen=True)
class StepPoint:
    """What one point asks for. Prefill: batch 1, ``tokens`` is the prompt.

    Decode: ``tokens`` is the context in the middle of the measured steps.
    """

    phase: Phase
    batch: int
    tokens: int

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if self.phase not in ("decode", "prefill"):
            raise UsageError(f"phase is {self.phase!r}; allowed: decode, prefill")
        if self.batch < 1 or self.tokens < 2 or (self.phase == "prefill" and self.batch != 1):
            raise UsageError(f"{self} needs batch >= 1 (1 for prefill) and at least 2 tokens")

    @property
    def sequences(self) -> tuple[tuple[int, int], ...]:
        """The step as (new, past) pairs, for ``step_work``."""
        if self.phase == "prefill":
            return ((self.tokens, 0),)
        return ((1, self.tokens - 1),) * self.batch

    def __str__(self) -> str:
        return f"{self.phase} B={self.batch} S={self.tokens}"


@dataclass(frozen=True)
class MeasuredStep:
    """One point with the seconds of each pass; ``seconds`` is the least disturbed of them.

    Other load on the machine can only make a step slower, so the least is nearest to the engine's
    own time; ``halves`` (least of the odd and of the even passes) tell how far it can be trusted.
    """

    point: StepPoint
    passes: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The least of the passes."""
        return min(self.passes)

    @property
    def halves(self) -> tuple[float, float] | None:
        """Two independent estimates of the same point; None with a single pass."""
        if len(self.passes) < 2:
            return None
        return min(self.passes[::2]), min(self.passes[1::2])


def decode_grid(*, batches: Sequence[int], contexts: Sequence[int]) -> tuple[StepPoint, ...]:
    """All combinations, as decode points."""
    return tuple(StepPoint("decode", b, s) for b in batches for s in contexts)


def prefill_points(lengths: Sequence[int]) -> tuple[StepPoint, ...]:
    """One prefill point per prompt length."""
    return tuple(StepPoint("prefill", 1, n) for n in lengths)


class PromptSource:
    """Distinct prompts of exact length, from a seed. Decode prompts of one stream share a prefix.

    With a prefix cache on the server, a decode point then pays for its context only once; prefill
    prompts never repeat.
    """

    def __init__(self, *, vocab: int, longest: int, seed: int = 0) -> None:
        if vocab <= FIRST_TOKEN_ID + 1 or longest < 2:
            raise UsageError(f"vocab {vocab} or longest {longest} is too small for prompts")
        self._vocab, self._longest, self._seed = vocab, longest, seed
        self._fresh = random.Random(f"{seed}-prefill")

    def stream(self, index: int, *, tokens: int) -> list[int]:
        """The first ``tokens`` ids of stream ``index``."""
        if not 1 <= tokens <= self._longest:
            raise UsageError(f"a prompt of {tokens} tokens; allowed: 1 to {self._longest}")
        rng = random.Random(f"{self._seed}-stream-{index}")
        return [self._id(rng) for _ in range(self._longest)][:tokens]

    def fresh(self, tokens: int) -> list[int]:
        """A prompt that was never given before."""
        return [self._id(self._fresh) for _ in range(tokens)]

    def _id(self, rng: random.Random) -> int:
        return rng.randrange(FIRST_TOKEN_ID, self._vocab)


def requests_for(
    point: StepPoint, *, prompts: PromptSource, model: str, steps: int = 24
) -> list[Request]:
    """The requests that together make one point.

    Decode: ``steps`` measured steps, and as many tokens more as streams can start late (one step
    each). The prompt is ``steps / 2`` shorter than the context, which lies in the middle.
    """
    template = Request(prompt=[0], model=model, endpoint="completions", extra={"ignore_eos": True})
    if point.phase == "prefill":
        return [replace(template, prompt=prompts.fresh(point.tokens), max_tokens=1)]
    length = max(1, point.tokens - (steps + point.batch) // 2)
    return [
        replace(template, prompt=prompts.stream(i, tokens=length), max_tokens=steps + point.batch)
        for i in range(point.batch)
    ]


def read_point(point: StepPoint, timelines: Sequence[Timeline]) -> float:
    """Seconds of one step, or of one prefill, from the streams of one point.

    Prefill: first token minus connection. Decode: of all runs of eight tokens in a row, in which
    every stream decodes, the shortest, over eight. (Single gaps would not do: a late read makes
    the next gap too short.) Raises UnmeasuredError when a request failed or no steps are left.
    """
    for timeline in timelines:
        if not (state := outcome(timeline)).ok:
            raise UnmeasuredError(f"{point}: a request failed: {timeline.error or state.reason}")
    if len(timelines) != point.batch:
        raise UnmeasuredError(f"{point}: {len(timelines)} streams came back, not {point.batch}")
    if point.phase == "prefill":
        first, start = token_marks(timelines[0], what=point)[0][0], timelines[0].sent_s
        if start is None:
            raise UnmeasuredError(f"{point}: the send time is unknown")
        return first - max(start, timelines[0].connected_s or start)
    marks = [token_marks(t, what=point) for t in timelines]
    begin, end = max(m[0][0] for m in marks), min(m[-1][0] for m in marks)
    runs = [run for m in marks for run in _runs(m, begin, end)]
    if not runs:
        raise BunchedError(f"{point}: fewer than {QUIET_STEPS} steps with all streams together")
    return min(runs)


def token_marks(timeline: Timeline, *, what: object) -> list[tuple[float, int]]:
    """(time, tokens so far) of each arrival, tokens without text included.

    A random prompt brings tokens that are half a character: they show nothing, yet are steps.
    Raises UnmeasuredError, naming ``what`` was measured, where no token or no count came.
    """
    marks: list[tuple[float, int]] = []
    for chunk in timeline.events():
        if chunk.tokens is None:
            if chunk.kind in VISIBLE_KINDS:
                raise UnmeasuredError(f"{what}: the server gave no token counts with its chunks")
            continue
        total = chunk.tokens + (marks[-1][1] if marks else 0)
        if marks and marks[-1][0] == chunk.t_s:
            marks[-1] = (chunk.t_s, total)
        elif chunk.tokens:
            marks.append((chunk.t_s, total))
    if not marks:
        raise UnmeasuredError(f"{what}: no token came")
    return marks


def _runs(marks: list[tuple[float, int]], begin: float, end: float) -> list[float]:
    """Seconds per token over every stretch of at least eight tokens inside [begin, end]."""
    inside = [m for m in marks if begin <= m[0] <= end]
    runs = []
    for i, (start_s, start_tokens) in enumerate(inside):
        stop = next((m for m in inside[i + 1 :] if m[1] - start_tokens >= QUIET_STEPS), None)
        if stop is not None:
            runs.append((stop[0] - start_s) / (stop[1] - start_tokens))
    return runs


def measure(
    points: Sequence[StepPoint],
    *,
    send: Send,
    prompts: PromptSource,
    model: str,
    passes: int = 2,
    retries: int = 0,
    steps: int = 24,
    on_point: Callable[[StepPoint, float], None] | None = None,
) -> tuple[MeasuredStep, ...]:
    """Measure every point ``passes`` times, in whole passes, so that slow drift hits all points.

    ``send(requests, concurrency)`` sends them and returns their timelines in order, for example
    ``lambda r, c: run_closed_loop(r, base_url=server.base_url, concurrency=c)``. A short warm-up
    goes before the first pass and is thrown away. ``retries``: up to so many further passes over
    the points whose two least passes still differ by more than 10 %; other load shows itself there.
    Raises BunchedError, an UnmeasuredError, where five tries of one point could not be read.
    """
    if passes < 1 or not points:
        raise UsageError(f"{len(points)} points and {passes} passes: both must be at least 1")

    def one_pass(point: StepPoint) -> float:
        requests = requests_for(point, prompts=prompts, model=model, steps=steps)
        return read_point(point, send(requests, point.batch))

    seconds: dict[StepPoint, list[float]] = {point: [] for point in points}
    _warm_up(points, send=send, prompts=prompts, model=model)
    for turn in range(passes + retries):
        due = seconds if turn < passes else [p for p in seconds if not _settled(seconds[p])]
        for point in due:
            value = unbunched(partial(one_pass, point))
            seconds[point].append(value)
            if on_point is not None:
                on_point(point, value)
    return tuple(MeasuredStep(point, tuple(values)) for point, values in seconds.items())


def unbunched(measure: Callable[[], Value]) -> Value:
    """What ``measure`` gives; asked again, five times in all, while it raises BunchedError.

    A busy machine hands out replies in bunches for a moment; the next reply is whole again.
    """
    for _ in range(BUNCHED_TRIES - 1):
        with suppress(BunchedError):
            return measure()
    return measure()


def _settled(passes: Sequence[float]) -> bool:
    """True when the two least disturbed passes agree."""
    least = sorted(passes)[:2]
    return len(least) == 2 and least[1] <= least[0] * (1 + SETTLED)


def _warm_up(points: Sequence[StepPoint], *, send: Send, prompts: PromptSource, model: str) -> None:
    """The widest batch at the shortest context, and one short prompt: kernels and memory are used.

    Contexts are not computed ahead: where the server keeps them, the first pass pays for it.
    """
    decode = [p for p in points if p.phase == "decode"]
    if decode:
        widest, shortest = max(p.batch for p in decode), min(p.tokens for p in decode)
        requests = requests_for(
            StepPoint("decode", widest, shortest), prompts=prompts, model=model, steps=1
        )
        send([replace(r, max_tokens=2) for r in requests], widest)
    send(requests_for(StepPoint("prefill", 1, 64), prompts=prompts, model=model), 1)
