"""What a speculative step costs on this machine, measured on replies that are known beforehand.

*Before* any speculation: a step that checks k guesses runs k + 1 tokens through the weights and the
output head, as a plain step for k + 1 users does. So the times of plain batches give ``v(k)``.

*With* speculation: replies that may hold one token only. n-gram lookup then guesses right every
time, a step gives k + 1 tokens, and what it costs can be read off. And replies of random tokens, in
which lookup searches in vain: what is left then is the price of searching.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.estimate.points import MeasuredStep, PromptSource, StepPoint, measure
from turbo_lab.estimate.verification import CostOfCheck, VerifyCost
from turbo_lab.metrics import definitions
from turbo_lab.speculative.counters import GuessCounts, read_counts
from turbo_lab.speculative.runs import SETTLE_S, token_marks
from turbo_lab.speculative.tokens import text_tokens
from turbo_lab.workload.prompts import token_id_prompts
from turbo_lab.workload.request import Request

CONTEXT = 160  # tokens in the middle of a measured reply, as in the class prompts
FORCED_TEXT = " stone"
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
class ForcedSteps:
    """Steps of replies of which it is known beforehand whether they can be guessed, on one arm.

    ``step_s``: seconds per decode step, one value per pass. ``tokens_per_step``: by the engine's
    counters. ``concurrency``: so many replies at once.
    """

    step_s: tuple[float, ...]
    tokens_per_step: float
    concurrency: int = 1

    @property
    def seconds(self) -> float:
        """The least disturbed pass: other load can only make a step longer."""
        return min(self.step_s)

    @property
    def spread(self) -> float:
        """Slowest pass over the fastest, less 1: how far the number can be trusted."""
        return max(self.step_s) / self.seconds - 1

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "step_s": list(self.step_s), "tokens_per_step": self.tokens_per_step,
            "concurrency": self.concurrency,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> ForcedSteps:
        """Inverse of ``to_dict``."""
        return cls(tuple(raw["step_s"]), raw["tokens_per_step"], raw["concurrency"])


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


def forced_steps(
    server: Any, *, draft_tokens: int, vocab: int, passes: int = 3, concurrency: int = 1
) -> ForcedSteps:
    """Seconds per step of forced replies. Raises UnmeasuredError when a request failed."""
    kind = {"draft_tokens": draft_tokens, "vocab": vocab, "concurrency": concurrency}
    return _steps(server, lambda seed: forced_requests(server, seed=seed, **kind), passes=passes,
                  concurrency=concurrency)  # fmt: skip


def fresh_steps(server: Any, *, vocab: int, passes: int = 3) -> ForcedSteps:
    """Seconds per step of replies in which n-gram lookup searches and finds nothing.

    Raises UnmeasuredError when a request failed.
    """
    return _steps(server, lambda seed: fresh_requests(server, vocab=vocab, seed=seed),
                  passes=passes)  # fmt: skip


def _steps(
    server: Any, ask: Callable[[int], list[Request]], *, passes: int, concurrency: int = 1
) -> ForcedSteps:
    """``passes`` runs of the requests, after one that is thrown away."""
    seconds, counted = [], []
    for number in range(passes + 1):
        asked = ask(number)
        before = read_counts(server)
        runs = run_closed_loop(asked, base_url=server.base_url, concurrency=concurrency)
        time.sleep(SETTLE_S)
        bad = [definitions.outcome(t).reason for t in runs if not definitions.outcome(t).ok]
        if bad:
            raise UnmeasuredError(f"{len(bad)} forced replies failed: {bad[0]}")
        if number:
            counted.append(read_counts(server).since(before))
            seconds.append(_step_s(runs))
    return ForcedSteps(tuple(seconds), _tokens_per_step(counted, concurrency), concurrency)


def _step_s(runs: Sequence[Any]) -> float:
    """Seconds per arrival while all replies are between their first and their last one."""
    marks = [[t for t, _ in token_marks(run)] for run in runs]
    begin, end = max(m[0] for m in marks), min(m[-1] for m in marks)
    inside = [[t for t in times if begin <= t <= end] for times in marks]
    longest = max(inside, key=len)
    if len(longest) < 3:
        raise UnmeasuredError("the forced replies share fewer than three arrivals")
    return (longest[-1] - longest[0]) / (len(longest) - 1)


def _tokens_per_step(counted: Sequence[GuessCounts], concurrency: int) -> float:
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

    def together(self, *, plain_s: float, guessing_s: float, alone_s: float) -> ArmCost:
        """The costs for several users, from a plain and a guessing step of as many.

        The search in vain takes as long as for one user, ``(empty - 1) * alone_s`` (``alone_s``: a
        plain step for one); in between the cost rises evenly with the guesses per user.
        """
        empty = 1 + (self.empty - 1) * alone_s / plain_s
        return ArmCost(empty, guessing_s / plain_s, self.draft_tokens, shape=lambda k: 1 + k)

    def draft_cost(self) -> float:
        """``c`` of a draft model: what the check does not explain, per guess, in plain steps.

        Below 0 where the measured step is shorter than the plain batches promised.
        """
        return (self.whole - self.shape(self.draft_tokens)) / self.draft_tokens


def arm_cost(
    forced: ForcedSteps,
    *,
    plain: ForcedSteps,
    draft_tokens: int,
    shape: CostOfCheck,
    fresh: ForcedSteps | None = None,
    plain_fresh: ForcedSteps | None = None,
) -> ArmCost:
    """From the steps of one arm and of the off-control on the same kinds of replies.

    ``fresh`` and ``plain_fresh``: where given, their difference is the price of searching in vain.
    """  # fmt: skip
    empty = 1.0
    if fresh is not None and plain_fresh is not None:
        empty += (fresh.seconds - plain_fresh.seconds) / plain.seconds
    return ArmCost(empty, forced.seconds / plain.seconds, draft_tokens, shape)
