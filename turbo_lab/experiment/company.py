"""The same prompt alone and in company: which token was chosen, and how close the next one was.

A kernel may add up its numbers in another order at another batch size. The sums then differ in
their last digits, and where two tokens are nearly tied the other one wins.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import Any

from turbo_lab.core.direct import open_direct
from turbo_lab.core.errors import EngineError, UnmeasuredError, UsageError
from turbo_lab.workload.request import Request


@dataclass(frozen=True)
class Choice:
    """One chosen token. ``gap``: its log-probability minus that of the best other token."""

    token: str
    logprob: float
    gap: float


Reply = tuple[Choice, ...]


def choices(
    requests: Sequence[Request], *, base_url: str, concurrency: int, timeout_s: float = 120.0
) -> list[Reply]:
    """Each request's tokens with their gaps, ``concurrency`` requests in flight, in order.

    Raises UsageError for chat requests (the completions endpoint tells the other tokens), and
    EngineError when a request fails.
    """
    if any(r.endpoint != "completions" for r in requests) or concurrency < 1:
        raise UsageError("choices needs endpoint='completions' and concurrency of at least 1")
    asked = {"stream": False, "stream_options": None, "logprobs": 2,
             "return_tokens_as_token_ids": True}  # fmt: skip
    bodies = [replace(r, extra={**r.extra, **asked}).body() for r in requests]
    url = base_url.rstrip("/").removesuffix("/v1") + "/v1/completions"
    with ThreadPoolExecutor(max_workers=concurrency) as users:
        return list(users.map(lambda body: _ask(url, body, timeout_s), bodies))


def _ask(url: str, body: dict[str, Any], timeout_s: float) -> Reply:
    call = urllib.request.Request(
        url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    try:
        with open_direct(call, timeout_s=timeout_s) as answer:
            told = json.loads(answer.read())["choices"][0]["logprobs"]
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        raise EngineError(f"POST {url}: {error!r}") from error
    return read_choices(told)


def read_choices(told: dict[str, Any]) -> Reply:
    """The ``logprobs`` part of a completion. Raises EngineError where it names no other token."""
    found = []
    columns = (told["tokens"], told["token_logprobs"], told["top_logprobs"])
    for token, logprob, top in zip(*columns, strict=True):
        others = [value for name, value in (top or {}).items() if name != token]
        if not others:
            raise EngineError(f"the server names no other token beside {token!r}")
        found.append(Choice(token, logprob, logprob - max(others)))
    return tuple(found)


def parting(one: Reply, other: Reply) -> int | None:
    """Position of the first token that differs; None where both are equal."""
    for position, (a, b) in enumerate(zip(one, other, strict=False)):
        if a.token != b.token:
            return position
    return None if len(one) == len(other) else min(len(one), len(other))


def largest_shift(one: Reply, other: Reply) -> float:
    """How far company moved the log-probability of a token, up to where the replies part."""
    end = parting(one, other)
    pairs = list(zip(one, other, strict=False))[:end]
    return max((abs(a.logprob - b.logprob) for a, b in pairs), default=0.0)


@dataclass(frozen=True)
class Apart:
    """How two sets of replies differ. ``gaps``: the first one's gap where each pair parts.

    ``shift``: the largest shift of a log-probability before any parting.
    """

    compared: int
    gaps: tuple[float, ...]
    shift: float

    @property
    def changed(self) -> int:
        """Pairs that are not equal."""
        return len(self.gaps)

    @property
    def clear_changes(self) -> int:
        """Pairs that part where the best token was ahead by more than twice the shift.

        Both tokens' log-probabilities may move by the shift, towards each other.
        """
        return sum(gap > 2 * self.shift for gap in self.gaps)


def compare(one: Sequence[Reply], other: Sequence[Reply]) -> Apart:
    """Compare pair by pair, up to the shorter set. Raises UnmeasuredError when one is empty."""
    pairs = list(zip(one, other, strict=False))
    if not pairs:
        raise UnmeasuredError("there are no two sets of replies to compare")
    partings = [(a, parting(a, b)) for a, b in pairs]
    gaps = tuple(a[at].gap if at < len(a) else 0.0 for a, at in partings if at is not None)
    return Apart(len(pairs), gaps, max(largest_shift(a, b) for a, b in pairs))


def shift_ratio(one: Apart, *, to: Apart) -> float:
    """How much more company moves log-probabilities in one setting than in another.

    Raises UnmeasuredError where it moved nothing in the other.
    """
    if not to.shift:
        raise UnmeasuredError("company moved no log-probability there, so there is no ratio")
    return one.shift / to.shift


def to_rows(replies: Sequence[Reply]) -> list[list[list[Any]]]:
    """JSON-ready form, as records keep it."""
    return [[[c.token, c.logprob, c.gap] for c in reply] for reply in replies]


def from_rows(rows: Sequence[Sequence[Sequence[Any]]]) -> list[Reply]:
    """Inverse of ``to_rows``."""
    return [tuple(Choice(*row) for row in reply) for reply in rows]
