"""What handing over costs and spares: TTFT by link, a prompt beside a reply, quality."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from turbo_lab.client.stream import send_one
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.engines.kv_connector.codec import RAW
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.experiment import company
from turbo_lab.experiment.prefix import prompt_request
from turbo_lab.metrics import definitions
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.parallel.disagg import RECOMPUTE, Handing, Moved

PATIENCE_S = 120.0
POLL_S = 0.05
GENERATED = "vllm:generation_tokens_total"


def time_ways(
    parts: Handing, prompt: Sequence[int], *, rates_bytes_s: Sequence[float | None], passes: int,
    wire: str = RAW,
) -> list[Moved]:  # fmt: skip
    """One prompt, computed again and fetched at each rate, all in turn and ``passes`` times.

    The producer computes and keeps the prompt once; that time is in none of the rows. A machine
    that slows down meanwhile slows every way. Raises UnmeasuredError when a transfer was not whole.
    """
    offer = parts.offer(prompt)
    rows = []
    for _ in range(passes):
        rows.append(parts.ask(prompt))
        for rate in rates_bytes_s:
            rows.append(parts.ask(prompt, offer=offer, rate_bytes_s=rate, wire=wire))
            if rows[-1].reason or rows[-1].cached_tokens != offer["remote_tokens"]:
                raise UnmeasuredError(
                    f"{rows[-1].cached_tokens} of {offer['remote_tokens']} tokens were fetched: "
                    f"{rows[-1].reason or 'no reason was given'}"
                )
    return rows


def ttft_by_rate(rows: Sequence[Mapping[str, Any]]) -> dict[float | None, list[float]]:
    """Samples of the fetched ones by rate (None: no limit), from rows as records keep them."""
    found: dict[float | None, list[float]] = {}
    for row in rows:
        if row["arm"] != RECOMPUTE:
            found.setdefault(row["rate_bytes_s"], []).append(row["ttft_s"])
    return found


def ttft_recomputed(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Samples of the computed ones."""
    return [row["ttft_s"] for row in rows if row["arm"] == RECOMPUTE]


@dataclass(frozen=True)
class Disturbed:
    """A reply, and a long prompt that arrived beside it. ``arm`` says where the prompt went.

    ``gaps_s``: between the reply's tokens; ``beside``: which of them lie, at least in part, between
    the prompt's arrival and its first token. ``at_s``: when each gap began, from the first token.
    ``prompt_s``: the prompt's own time to its first token.
    """

    arm: str
    at_s: tuple[float, ...]
    gaps_s: tuple[float, ...]
    beside: tuple[bool, ...]
    prompt_s: float | None

    @classmethod
    def of(cls, arm: str, reply: Timeline, prompt: Timeline | None) -> Disturbed:
        """From what arrived. Raises UnmeasuredError for a failed request or too short a reply."""
        for run in (reply, *([prompt] if prompt else [])):
            if not (end := definitions.outcome(run)).ok:
                raise UnmeasuredError(f"a request of the arm {arm} failed: {end.reason}")
        times = [arrival.t_s for arrival in definitions.arrivals(reply)]
        if len(times) < 3:
            raise UnmeasuredError(f"the reply of the arm {arm} came in {len(times)} pieces")
        start, end_s = (prompt.sent_s, prompt.closed_s) if prompt else (None, None)
        inside = [
            start is not None and end_s is not None and b > start and a < end_s
            for a, b in itertools.pairwise(times)
        ]
        if prompt and not any(inside):
            raise UnmeasuredError(f"the reply had ended before the prompt came (arm {arm})")
        own = None if start is None or end_s is None else end_s - start
        gaps = tuple(b - a for a, b in itertools.pairwise(times))
        return cls(arm, tuple(t - times[0] for t in times[:-1]), gaps, tuple(inside), own)

    @property
    def worst_s(self) -> float:
        """The longest gap beside the prompt; of all gaps where there was none."""
        beside = [g for g, b in zip(self.gaps_s, self.beside, strict=True) if b]
        return max(beside or self.gaps_s)

    @property
    def quiet_s(self) -> float:
        """The median of the gaps that no prompt touched."""
        quiet = [g for g, b in zip(self.gaps_s, self.beside, strict=True) if not b]
        return median(quiet or self.gaps_s)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Disturbed:
        """Inverse of ``to_dict``."""
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()})


def disturb(
    parts: Handing, prompt: Sequence[int], *, arm: str, prompt_url: str | None,
    reply_prompt: Sequence[int], reply_tokens: int,
) -> Disturbed:  # fmt: skip
    """A reply runs at the consumer, and beside it a prompt goes to ``prompt_url``."""
    return disturb_one(parts.consumer, prompt, arm=arm, prompt_url=prompt_url,
                       reply_prompt=reply_prompt, reply_tokens=reply_tokens)  # fmt: skip


def disturb_one(
    server: VllmServer, prompt: Sequence[int], *, arm: str, prompt_url: str | None,
    reply_prompt: Sequence[int], reply_tokens: int, after_tokens: int = 4,
) -> Disturbed:  # fmt: skip
    """A reply runs at ``server``; once it has ``after_tokens``, the prompt goes to its address.

    The server's own counter tells when. ``prompt_url`` None sends no prompt: the control.
    """
    reply = prompt_request(reply_prompt, model=server.model_name, output_tokens=reply_tokens)
    goal = server.counter(GENERATED) + after_tokens
    with ThreadPoolExecutor(max_workers=1) as client:
        running = client.submit(send_one, reply, base_url=server.base_url, timeout_s=PATIENCE_S)
        beside = None
        if prompt_url is not None:
            _wait_for_tokens(server, goal, running)
            one = prompt_request(prompt, model=server.model_name)
            beside = send_one(one, base_url=prompt_url, timeout_s=PATIENCE_S)
        return Disturbed.of(arm, running.result(), beside)


def _wait_for_tokens(server: VllmServer, goal: float, running: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while server.counter(GENERATED) < goal and not running.done():
        if time.monotonic() > deadline:
            raise UnmeasuredError(f"no reply began within {PATIENCE_S:g} s")
        time.sleep(POLL_S)


def handed_choices(
    parts: Handing, prompts: Sequence[Sequence[int]], *, wire: str | None, output_tokens: int
) -> list[company.Reply]:
    """Greedy replies token by token, the prompts handed over as ``wire`` (None: computed here)."""
    requests = []
    parts.set_rate(None)
    for prompt in prompts:
        extra: dict[str, Any] = {}
        if wire is not None:
            extra["kv_transfer_params"] = parts.through_link(parts.offer(prompt), wire=wire)
        requests.append(
            prompt_request(prompt, model=parts.consumer.model_name, output_tokens=output_tokens,
                           **extra)
        )  # fmt: skip
    return company.choices(requests, base_url=parts.consumer.base_url, concurrency=1)
