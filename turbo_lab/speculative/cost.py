"""What a speculative step costs on this machine, measured on replies that are known beforehand.

*Before* any speculation: a step that checks k guesses runs k + 1 tokens through the weights and the
output head, as a plain step for k + 1 users does. So the times of plain batches give ``v(k)``.

*With* speculation: replies that may hold one token only. n-gram lookup then guesses right every
time, a step gives k + 1 tokens, and what it costs can be read off. And replies of random tokens, in
which lookup searches in vain: what is left then is the price of searching.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.estimate.points import (
    BunchedError,
    MeasuredStep,
    PromptSource,
    StepPoint,
    measure,
    unbunched,
)
from turbo_lab.estimate.verification import CostOfCheck, VerifyCost
from turbo_lab.metrics.definitions import outcome
from turbo_lab.speculative.counters import GuessCounts, read_counts
from turbo_lab.speculative.runs import REST_S, token_marks
from turbo_lab.speculative.tokens import text_tokens
from turbo_lab.workload.prompts import token_id_prompts
from turbo_lab.workload.request import Request

CONTEXT = 160  # tokens in the middle of a measured reply, as in the class prompts
FORCED_TEXT = " stone"
Ask = Callable[[Any, int], list[Request]]
FORCED_STEPS = 16  # steps of a reply whose only word is known


def batch_points(lengths: Sequence[int], *, context: int = CONTEXT) -> tuple[StepPoint, ...]:
    """A plain step for one user, and one for k + 1 users for every number k of guesses."""
    return tuple(StepPoint("decode", n, context) for n in sorted({1, *(k + 1 for k in lengths)}))


def measure_batches(
    server: Any, lengths: Sequence[int], *, vocab: int, passes: int
) -> tuple[MeasuredStep, ...]:
    """The points of ``batch_points`` on a server without speculation."""

    def send(requests: Sequence[Request], concurrency: int) -> Sequence[Any]:
        return run_closed_loop(requests, base_url=server.base_url, concurrency=concurrency)

    return measure(
        batch_points(lengths), send=send, prompts=PromptSource(vocab=vocab, longest=2 * CONTEXT),
        model=server.model_name, passes=passes,
    )  # fmt: skip


def batch_cost(steps: Sequence[MeasuredStep]) -> VerifyCost:
    """``v(k)`` as the time of a plain step for k + 1 users over that for one."""
    return VerifyCost.from_steps({m.point.batch: m.seconds for m in steps})


@dataclass(frozen=True)
class StepPair:
    """Seconds per decode step on the off-control and right after it on an arm, pass by pass.

    The replies are such that it is known beforehand whether they can be guessed. Neighbours in time
    are compared, for a machine's speed drifts over minutes by more than what is looked for.
    ``tokens_per_step``: of the arm's steps with a guess, by the engine's counters.
    """

    off_s: tuple[float, ...]
    on_s: tuple[float, ...]
    tokens_per_step: float

    @property
    def plain_s(self) -> float:
        """A step of the off-control, in seconds: the median pass."""
        return statistics.median(self.off_s)

    @property
    def ratio(self) -> float:
        """A step of the arm in steps of the off-control: the median over the passes."""
        return statistics.median(on / off for off, on in zip(self.off_s, self.on_s, strict=True))

    @property
    def spread(self) -> float:
        """Largest ratio of a pass over the smallest, less 1: how far it can be trusted."""
        ratios = [on / off for off, on in zip(self.off_s, self.on_s, strict=True)]
        return max(ratios) / min(ratios) - 1

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "off_s": list(self.off_s), "on_s": list(self.on_s),
            "tokens_per_step": self.tokens_per_step,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> StepPair:
        """Inverse of ``to_dict``."""
        return cls(tuple(raw["off_s"]), tuple(raw["on_s"]), raw["tokens_per_step"])


def forced_requests(
    server: Any, *, draft_tokens: int, vocab: int, concurrency: int = 1, seed: int = 0
) -> list[Request]:
    """Requests whose reply is one word over and over, the engine's choice being limited to it.

    The prompt ends with the word as often as the longest guess needs, so that from the first step
    on a guess has its full length. All arms get the same number of steps at about one context.
    """
    token = text_tokens(server, FORCED_TEXT)[0]
    tokens = FORCED_STEPS * (draft_tokens + 1)
    start = max(8, CONTEXT - tokens // 2)
    beginnings = token_id_prompts(concurrency, tokens=start, vocab_size=vocab, seed=seed,
                                  avoid=(token, *range(1000)))  # fmt: skip
    return [
        Request(
            [*beginning, *[token] * (draft_tokens + 8)], model=server.model_name,
            endpoint="completions", max_tokens=tokens + 1,
            extra={"ignore_eos": True, "allowed_token_ids": [token]},
        )
        for beginning in beginnings
    ]  # fmt: skip


def fresh_requests(server: Any, *, vocab: int, seed: int = 0) -> list[Request]:
    """A request whose reply is drawn from the whole vocabulary: nothing repeats, nothing is guessed
    by lookup.
    """
    prompt = token_id_prompts(1, tokens=CONTEXT - FORCED_STEPS, vocab_size=vocab, seed=seed,
                              avoid=range(1000))[0]  # fmt: skip
    return [
        Request(
            prompt, model=server.model_name, endpoint="completions", temperature=2.0,
            max_tokens=2 * FORCED_STEPS + 1, extra={"ignore_eos": True, "seed": seed},
        )
    ]  # fmt: skip


def forced_pair(
    off: Any, server: Any, *, draft_tokens: int, vocab: int, passes: int = 3, concurrency: int = 1
) -> StepPair:
    """Steps of forced replies on both. Raises UnmeasuredError when a request failed."""
    kind = {"vocab": vocab, "concurrency": concurrency}

    def ask(guesses: int) -> Ask:
        return lambda one, seed: forced_requests(one, draft_tokens=guesses, seed=seed, **kind)

    return _pair(off, server, (ask(0), ask(draft_tokens)), passes, concurrency)


def fresh_pair(off: Any, server: Any, *, vocab: int, passes: int = 3) -> StepPair:
    """Steps of replies in which n-gram lookup searches and finds nothing, on both.

    Raises UnmeasuredError when a request failed.
    """

    def ask(one: Any, seed: int) -> list[Request]:
        return fresh_requests(one, vocab=vocab, seed=seed)

    return _pair(off, server, (ask, ask), passes)


def _pair(
    off: Any, server: Any, ask: tuple[Ask, Ask], passes: int, concurrency: int = 1
) -> StepPair:
    """``passes`` turns of both servers, after one that is thrown away."""
    seconds: tuple[list[float], list[float]] = ([], [])
    counted: list[GuessCounts] = []
    for number in range(passes + 1):
        for side, one in enumerate((off, server)):
            asked = ask[side](one, number)
            step_s, counts = unbunched(partial(_one, one, asked, concurrency))
            if number:
                seconds[side].append(step_s)
                counted += [counts] if side else []
    return StepPair(tuple(seconds[0]), tuple(seconds[1]), _tokens_per_step(counted))


def _one(server: Any, asked: list[Request], concurrency: int) -> tuple[float, GuessCounts]:
    """Seconds per step of these requests, and what the engine counted meanwhile."""
    before = read_counts(server)
    runs = run_closed_loop(asked, base_url=server.base_url, concurrency=concurrency)
    time.sleep(REST_S)
    if bad := [outcome(t).reason for t in runs if not outcome(t).ok]:
        raise UnmeasuredError(f"{len(bad)} replies for timing failed: {bad[0]}")
    return _step_s(runs), read_counts(server).since(before)


def _step_s(runs: Sequence[Any]) -> float:
    """Seconds per arrival while all replies are between their first and their last one."""
    marks = [[t for t, _ in token_marks(run)] for run in runs]
    begin, end = max(m[0] for m in marks), min(m[-1] for m in marks)
    inside = [[t for t in times if begin <= t <= end] for times in marks]
    longest = max(inside, key=len)
    if len(longest) < 3:
        raise BunchedError("the forced replies share fewer than three arrivals")
    return (longest[-1] - longest[0]) / (len(longest) - 1)


def _tokens_per_step(counted: Sequence[GuessCounts]) -> float:
    """Tokens that one sequence gets from one step that has a guess; 1 without speculation."""
    drafts = sum(c.drafts for c in counted)
    return 1 + sum(c.accepted for c in counted) / drafts if drafts else 1.0


@dataclass(frozen=True)
class ArmCost:
    """Cost of one arm's steps in plain steps: ``cost(l)`` for a step that checks l guesses.

    ``empty``: a step without a guess (1 where looking for one costs nothing). ``whole``: one with
    ``draft_tokens`` guesses, guessing included. Between the two the cost follows ``shape``.
    """

    empty: float
    whole: float
    draft_tokens: int
    shape: CostOfCheck

    def __call__(self, guesses: float) -> float:
        """Cost of a step with so many guesses."""
        rise = self.shape(self.draft_tokens) - 1
        part = (self.shape(guesses) - 1) / rise if rise > 0 else guesses / self.draft_tokens
        return self.empty + (self.whole - self.empty) * part

    @property
    def check(self) -> float:
        """The check of a whole guess alone, without the search: ``v(k)`` of n-gram lookup."""
        return self.whole - (self.empty - 1)

    def together(self, crowd: StepPair, *, alone: StepPair) -> ArmCost:
        """The costs for several users, from forced steps of as many (``crowd``) and of one.

        The search in vain takes as long as for one user; in between the cost rises evenly with the
        guesses per user.
        """
        empty = 1 + (self.empty - 1) * alone.plain_s / crowd.plain_s
        return ArmCost(empty, crowd.ratio, self.draft_tokens, shape=lambda k: 1 + k)

    def draft_cost(self) -> float:
        """``c`` of a draft model: what the check does not explain, per guess, in plain steps.

        Below 0 where the measured step is shorter than the plain batches promised.
        """
        return (self.whole - self.shape(self.draft_tokens)) / self.draft_tokens


def arm_cost(
    forced: StepPair, *, draft_tokens: int, shape: CostOfCheck, fresh: StepPair | None = None
) -> ArmCost:
    """From the steps of one arm beside the off-control's, on replies of both kinds.

    ``fresh``: where given, what its steps cost more is the price of searching in vain.
    """
    empty = 1.0 if fresh is None else fresh.ratio
    return ArmCost(empty, forced.ratio, draft_tokens, shape)
