"""Requests that share a beginning, sent in turn, with the engine's counters beside them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.engines.metrics_page import sum_over_labels
from turbo_lab.estimate.points import StepPoint, read_point
from turbo_lab.estimate.prefix import hit_tokens
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.workload.prompts import token_id_prompts
from turbo_lab.workload.request import Request

PATIENCE_S = 5.0
SPECIAL = range(10)  # ids with a meaning of their own in the course's models
COUNTERS = {
    "finished": "vllm:request_success_total",
    "queried_tokens": "vllm:prefix_cache_queries_total",
    "hit_tokens": "vllm:prefix_cache_hits_total",
    "external_tokens": "vllm:external_prefix_cache_hits_total",
}


class PrefixServer(Protocol):
    """A vLLM server as this module needs it."""

    base_url: str
    model_name: str

    def metrics(self) -> dict[str, float]:
        """``name{labels}`` to value."""


@dataclass(frozen=True)
class Hits:
    """The engine's counters, since its start or between two readings; tokens of prompts.

    ``hit_tokens`` were in the pool, ``external_tokens`` came from behind a connector.
    """

    finished: int
    queried_tokens: int
    hit_tokens: int
    external_tokens: int

    def since(self, before: Hits) -> Hits:
        """What was added after ``before``."""
        return Hits(**{k: v - getattr(before, k) for k, v in asdict(self).items()})


def read_hits(server: PrefixServer) -> Hits:
    """The counters now; 0 for one that the server does not publish (caching may be off)."""
    sums = sum_over_labels(server.metrics())
    if COUNTERS["finished"] not in sums:
        raise UnmeasuredError(f"the server publishes no {COUNTERS['finished']}")
    return Hits(**{field: int(sums.get(name, 0.0)) for field, name in COUNTERS.items()})


@dataclass(frozen=True)
class Asked:
    """Requests sent in turn: what the engine counted for them, and what each one got.

    ``cached_tokens``: what the server says of each; None where it does not.
    """

    hits: Hits
    ttft_s: tuple[float, ...]
    cached_tokens: tuple[int | None, ...]
    texts: tuple[str | None, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        lists = ("ttft_s", "cached_tokens", "texts")
        return {**asdict(self.hits), **{name: list(getattr(self, name)) for name in lists}}


def ask_in_turn(server: PrefixServer, requests: Sequence[Request]) -> Asked:
    """Send requests one at a time and read the counters before and after.

    The server counts a request a moment after its end, so this waits for the last one. Raises
    UnmeasuredError when a request failed, or when others used the server meanwhile.
    """
    before = read_hits(server)
    runs = run_closed_loop(requests, base_url=server.base_url, concurrency=1)
    ttft_s = tuple(_first_token_s(r, run) for r, run in zip(requests, runs, strict=True))
    deadline = time.monotonic() + PATIENCE_S
    while True:
        hits = read_hits(server).since(before)
        if hits.finished >= len(runs) or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    if hits.finished != len(runs):
        raise UnmeasuredError(
            f"{len(runs)} requests were sent, the server counted {hits.finished}: others used it"
        )
    return Asked(hits, ttft_s, tuple(map(_cached_tokens, runs)), tuple(r.text for r in runs))


def _first_token_s(request: Request, run: Timeline) -> float:
    """Seconds to the first token, shown or not: a random prompt may bring half a character."""
    return read_point(StepPoint("prefill", 1, max(2, len(request.prompt))), [run])


def _cached_tokens(run: Timeline) -> int | None:
    """What the server says of one request, where it runs with --enable-prompt-tokens-details."""
    details: Mapping[str, Any] = (run.usage or {}).get("prompt_tokens_details") or {}
    return details.get("cached_tokens")


def prompt_request(
    prompt: Sequence[int],
    *,
    model: str,
    output_tokens: int = 1,
    request_id: str | None = None,
    **extra: Any,
) -> Request:
    """One request of token ids whose reply has exactly ``output_tokens``."""
    return Request(
        list(prompt), model=model, max_tokens=output_tokens, endpoint="completions",
        request_id=request_id,
        extra={"ignore_eos": True, **extra},
    )  # fmt: skip


@dataclass(frozen=True)
class PrefixCase:
    """Two prompts, one after the other: how much of the second is found?

    ``shared_tokens``: length of their common beginning under the same salt.
    """

    name: str
    first: tuple[int, ...]
    second: tuple[int, ...]
    shared_tokens: int
    salt: str | None = None

    @property
    def why(self) -> str:
        """What there is to find, in words."""
        salted = ", under another salt" if self.salt else ""
        return f"{self.shared_tokens} of {len(self.second)} tokens are shared{salted}"

    def predicted(self, *, block_tokens: int) -> int:
        """Tokens of the second prompt that will be found."""
        return hit_tokens(
            shared_tokens=self.shared_tokens, prompt_tokens=len(self.second),
            block_tokens=block_tokens,
        )  # fmt: skip

    def play(self, server: PrefixServer, *, output_tokens: int = 1) -> Asked:
        """Send the first, then the second; the account is the second's alone.

        A salt (tenant isolation) goes with the second. Raises UnmeasuredError.
        """
        facts = {"model": server.model_name, "output_tokens": output_tokens}
        ask_in_turn(server, [prompt_request(self.first, **facts)])
        extra = {"cache_salt": self.salt} if self.salt else {}
        return ask_in_turn(server, [prompt_request(self.second, **facts, **extra)])


def prefix_cases(*, block_tokens: int, vocab_size: int, seed: int) -> tuple[PrefixCase, ...]:
    """Eight pairs that each ask one thing of the rule; prompts of about five blocks."""
    b = block_tokens
    facts = {"tokens": 6 * b, "vocab_size": vocab_size, "avoid": SPECIAL}
    own = token_id_prompts(8, seed=seed, **facts)
    tail = token_id_prompts(8, seed=seed + 1, **facts)
    half, long = b // 2, 5 * b - b // 4

    def joined(i: int, shared: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Two prompts whose first ``shared`` tokens are equal and whose next one differs."""
        other = [t if t != s else t - 1 for t, s in zip(tail[i], own[i], strict=True)]
        return tuple(own[i][:long]), tuple([*own[i][:shared], *other[shared:long]])

    def same(i: int, length: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (tuple(own[i][:length]),) * 2

    return (
        PrefixCase("whole_blocks", *joined(0, 4 * b), shared_tokens=4 * b),
        PrefixCase("inside_a_block", *joined(1, 3 * b + half), shared_tokens=3 * b + half),
        PrefixCase("again_whole_blocks", *same(2, 5 * b), shared_tokens=5 * b),
        PrefixCase("again_one_more", *same(3, 5 * b + 1), shared_tokens=5 * b + 1),
        PrefixCase("first_token_changed", _other_first(own[4], long), tuple(own[4][:long]), 0),
        PrefixCase("nothing_shared", *joined(5, 0), shared_tokens=0),
        PrefixCase("other_salt", *same(6, long), shared_tokens=0, salt="tenant-b"),
        PrefixCase("below_one_block", *same(7, b - 1), shared_tokens=b - 1),
    )


def _other_first(prompt: Sequence[int], length: int) -> tuple[int, ...]:
    """The prompt with another first token."""
    return (prompt[0] - 1, *prompt[1:length])


def play_cases(server: PrefixServer, cases: Sequence[PrefixCase]) -> dict[str, dict[str, Any]]:
    """Every pair on one server: name to the account of its second prompt. Raises UnmeasuredError.

    Replies of eight tokens, so that a wrong reuse would show in the text.
    """
    return {case.name: case.play(server, output_tokens=8).to_dict() for case in cases}


def time_prompts(
    server: PrefixServer, *, lengths: Sequence[int], passes: int, vocab_size: int, seed: int
) -> dict[str, Any]:
    """TTFT of prompts that share nothing: ``ttft_s`` by length (as in ``lengths``), ``hit_tokens``.

    All lengths in turn, ``passes`` times, after one pass that is thrown away: slow drift hits all.
    """
    prompts = [
        token_id_prompts(1, tokens=n, vocab_size=vocab_size, seed=seed + i, avoid=SPECIAL)[0]
        for i, n in enumerate([*lengths] * (passes + 1))
    ]
    told = ask_in_turn(server, [prompt_request(p, model=server.model_name) for p in prompts])
    kept = told.ttft_s[len(lengths) :]
    by_length = [list(kept[i :: len(lengths)]) for i in range(len(lengths))]
    return {"ttft_s": by_length, "hit_tokens": told.hits.hit_tokens}


def time_shared(
    server: PrefixServer,
    *,
    prompt_tokens: int,
    shared_tokens: int,
    passes: int,
    vocab_size: int,
    seed: int,
) -> dict[str, Any]:
    """TTFT of prompts that begin like one that was asked before: ``samples`` in s.

    ``shared_tokens`` are whole blocks. Raises UnmeasuredError when the engine did not find exactly
    these: the times would belong to something else.
    """
    base, *others = token_id_prompts(
        passes + 1, tokens=prompt_tokens, vocab_size=vocab_size, seed=seed, avoid=SPECIAL
    )
    prompts = [[*base[:shared_tokens], *other[shared_tokens:]] for other in others]
    model = server.model_name
    ask_in_turn(server, [prompt_request(base, model=model)])
    told = ask_in_turn(server, [prompt_request(p, model=model) for p in prompts])
    if told.hits.hit_tokens != passes * shared_tokens:
        raise UnmeasuredError(
            f"{told.hits.hit_tokens} tokens were found in {passes} prompts, not {shared_tokens} in "
            "each"
        )
    return {"samples": list(told.ttft_s), "hit_tokens": told.hits.hit_tokens}


def same_share(some: Sequence[Any], others: Sequence[Any]) -> float:
    """Share of equal items, pair by pair (replies with and without reuse). Raises UsageError."""
    if not some or len(some) != len(others):
        raise UsageError(f"{len(some)} and {len(others)} items: two equal lengths above 0 wanted")
    return sum(a == b for a, b in zip(some, others, strict=True)) / len(some)
