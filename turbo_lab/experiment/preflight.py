"""Before the measurement: does the server answer, what does it accept, how does it count tokens."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turbo_lab.client.stream import send_one
from turbo_lab.core.errors import EngineError, MissingDependencyError, UsageError
from turbo_lab.core.host import user_path
from turbo_lab.experiment.plan import BenchPlan
from turbo_lab.experiment.secrets import hide_key
from turbo_lab.metrics import definitions
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.workload.conversation import Conversation
from turbo_lab.workload.prompts import Tokenizer, token_count, words
from turbo_lab.workload.request import Request, UsageWanted

PROBE_WORDS = (12, 60)
PROBE_TOKENS = 4
REFUSED = (400, 404, 422)


@dataclass(frozen=True)
class Dialect:
    """What the server takes and how it counts.

    ``tokens_per_word`` and ``template_tokens`` come from its own usage of two probes; None where
    it does not count. ``turn_tokens``: what a later turn costs beside its own message and the reply
    before it (asked only for workloads with turns). ``lengths`` says how prompt lengths were made.
    """

    usage: UsageWanted
    ignore_eos: bool
    tokens_per_word: float | None
    template_tokens: float | None
    lengths: str
    turn_tokens: float | None = None

    @property
    def extra(self) -> dict[str, Any]:
        """Further body fields of every request."""
        return {"ignore_eos": True} if self.ignore_eos else {}


class _HubTokenizer:
    """A ``tokenizers`` tokenizer with the two methods that prompts need."""

    def __init__(self, file: Path) -> None:
        from tokenizers import Tokenizer as Fast

        self._fast = Fast.from_file(str(file))

    def encode(self, text: str, /, *, add_special_tokens: bool = False) -> list[int]:
        """Token ids of a text."""
        return self._fast.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: Sequence[int], /) -> str:
        """Text of token ids."""
        return self._fast.decode(list(ids))


def load_tokenizer(folder: str | None, *, required: bool) -> Tokenizer | None:
    """The tokenizer of a local model folder; None where none is required and none can be read.

    A server may name a folder that this user may not even look into: that is none.
    """
    file = user_path(folder) / "tokenizer.json" if folder else None
    if file is None or not os.path.isfile(file):  # noqa: PTH113 (Path.is_file may raise)
        if required:
            raise UsageError(f"{folder} has no tokenizer.json to read; give a model folder")
        return None
    try:
        return _HubTokenizer(file)
    except ImportError:
        if required:
            raise MissingDependencyError("tokenizers", needed_for="exact prompt lengths") from None
    except Exception as error:  # The library raises Exception itself for a file that is none.
        if required:
            raise UsageError(f"{file} is no tokenizer: {error}. Give another folder") from error
    return None


def learn_dialect(base_url: str, *, plan: BenchPlan, tokenizer: Tokenizer | None) -> Dialect:
    """Send two to six small requests. Raises EngineError when the server does not serve them.

    A server that refuses ``ignore_eos`` or continuous usage (HTTP 400, 404, 422) is asked without.
    """
    tries: tuple[tuple[UsageWanted, bool], ...] = (
        ("continuous", True), ("continuous", False), ("final", False), ("none", False),
    )  # fmt: skip
    for usage, ignore_eos in tries:
        first = _probe(base_url, plan, usage=usage, ignore_eos=ignore_eos, which=0)
        if first.status_code not in REFUSED:
            break
    _require(first, base_url, plan)
    second = _probe(base_url, plan, usage=usage, ignore_eos=ignore_eos, which=1)
    _require(second, base_url, plan)
    slope, template = _counting([definitions.input_tokens(t) for t in (first, second)])
    if tokenizer is not None:
        template = _template(first, tokenizer, plan)
    lengths = "exact by tokenizer" if tokenizer else "calibrated on the server's counts"
    if slope is None and tokenizer is None:
        lengths = "one word for one token: the server does not count prompt tokens"
    found = Dialect(usage, ignore_eos, slope, template, lengths)
    if plan.workload.turns == 1:
        return found
    return replace(found, turn_tokens=_turn_tokens(base_url, plan, found, first, tokenizer))


def _probe_text(plan: BenchPlan, which: int) -> str:
    return "Probe " + words(PROBE_WORDS[which] - 1, seed=plan.prompt_salt * 7 + which - 11)


def _probe(
    base_url: str, plan: BenchPlan, *, usage: UsageWanted, ignore_eos: bool, which: int
) -> Timeline:
    request = _probe_request(plan, which, usage, {"ignore_eos": True} if ignore_eos else {})
    return send_one(request, base_url=base_url, timeout_s=plan.timeout_s)


def _probe_request(
    plan: BenchPlan, which: int, usage: UsageWanted, extra: Mapping[str, Any]
) -> Request:
    return Request(
        _probe_text(plan, which),
        model=plan.model,
        max_tokens=PROBE_TOKENS,
        endpoint=plan.endpoint,  # type: ignore[arg-type]
        request_id=f"probe-{which}",
        usage=usage,
        extra=extra,
    )


def _turn_tokens(
    base_url: str, plan: BenchPlan, found: Dialect, first: Timeline, tokenizer: Tokenizer | None
) -> float | None:
    """Probe 0, an invented reply, then probe 1: what the server counts beyond the known texts."""
    probes = [_probe_request(plan, i, found.usage, found.extra) for i in (0, 1)]
    reply = words(PROBE_WORDS[0], seed=plan.prompt_salt * 7 + 5)
    asked = replace(Conversation(tuple(probes)).ask(1, [reply]), request_id="probe-turn")
    counted = send_one(asked, base_url=base_url, timeout_s=plan.timeout_s)
    _require(counted, base_url, plan)
    alone, both = definitions.input_tokens(first), definitions.input_tokens(counted)
    if alone is None or both is None:
        return None
    if tokenizer is not None:
        own = sum(token_count(tokenizer, text) for text in (reply, _probe_text(plan, 1)))
        return max(0.0, float(both - alone - own))
    known = (found.tokens_per_word or 1.0) * (PROBE_WORDS[0] + PROBE_WORDS[1])
    return max(0.0, both - alone - known)


def _require(timeline: Timeline, base_url: str, plan: BenchPlan) -> None:
    state = definitions.outcome(timeline)
    if state.ok:
        return
    why = hide_key(timeline.error or state.reason)
    hint = "Is it an OpenAI-compatible server, and does it know this model?"
    if "timed out" in why:
        hint = "It accepted the request and never answered. Raise --timeout for a slow server."
    elif "cannot connect" in why or "no connection" in why:
        hint = "Start the server, or correct the address."
    elif timeline.status_code in (401, 403):
        hint = "Put the API key into the environment variable TURBO_LAB_API_KEY."
    raise EngineError(
        f"the server at {base_url} failed a first small request for model {plan.model!r}, so "
        f"nothing was measured: {why}. {hint}"
    )


def _counting(counts: list[int | None]) -> tuple[float | None, float | None]:
    first, second = counts
    if first is None or second is None or second <= first:
        return None, None
    slope = (second - first) / (PROBE_WORDS[1] - PROBE_WORDS[0])
    return slope, max(0.0, first - slope * PROBE_WORDS[0])


def _template(first: Timeline, tokenizer: Tokenizer, plan: BenchPlan) -> float:
    """Tokens that the chat template adds, by the server's count of a text we count ourselves."""
    counted = definitions.input_tokens(first)
    own = token_count(tokenizer, _probe_text(plan, 0))
    return float(max(0, counted - own)) if counted is not None else 0.0
