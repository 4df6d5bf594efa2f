"""What the mock server says, as data: steps with times and bytes, and builders of replies."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from turbo_lab.core.errors import UsageError, did_you_mean

End = Literal["close", "truncate", "hang"]


@dataclass(frozen=True)
class Step:
    """Bytes that go out ``after_s`` seconds after the previous step (the first: after the request).

    ``mark`` is what the server's log calls it: ``content`` for text, else any word.
    """

    after_s: float
    raw: bytes
    mark: str = "other"

    def to_dict(self) -> dict[str, Any]:
        """JSON form: text under ``raw``, bytes that are no UTF-8 under ``base64``."""
        out: dict[str, Any] = {"after_s": self.after_s, "mark": self.mark}
        try:
            return {**out, "raw": self.raw.decode()}
        except UnicodeDecodeError:
            return {**out, "base64": base64.b64encode(self.raw).decode()}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Step:
        """From ``raw``, ``base64`` or ``data`` (one event; a dict is dumped as JSON)."""
        _only(row, {"after_s", "mark", "raw", "base64", "data"}, "step")
        if "data" in row:
            return event(row["data"], after_s=row.get("after_s", 0.0), mark=row.get("mark"))
        raw = row["raw"].encode() if "raw" in row else base64.b64decode(row.get("base64", ""))
        return cls(row.get("after_s", 0.0), raw, row.get("mark", "other"))


@dataclass(frozen=True)
class Speech:
    """A well-behaved streamed reply whose length follows the request's ``max_tokens``.

    First text after ``ttft_s + prompt words * prefill_s_per_word``, then a chunk of
    ``tokens_per_chunk`` tokens every ``gap_s``. ``usage`` ``asked`` gives what the request's
    stream_options ask for.
    """

    ttft_s: float = 0.02
    gap_s: float = 0.01
    tokens: int = 16
    tokens_per_chunk: int = 1
    prefill_s_per_word: float = 0.0
    role_chunk: bool = True
    usage: Literal["asked", "never"] = "asked"


@dataclass(frozen=True)
class Reply:
    """One answer: a status, then ``speech`` or ``steps``, then an end.

    ``close`` ends the HTTP body properly, ``truncate`` cuts the TCP connection, ``hang`` keeps it
    open and silent. ``match`` limits it to requests whose id or body contains that text.
    ``head_after_s`` None means that not even a status line is ever sent.
    """

    steps: tuple[Step, ...] = ()
    status: int = 200
    content_type: str = "text/event-stream"
    head_after_s: float | None = 0.0
    end: End = "close"
    match: str = ""
    speech: Speech | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown end."""
        if self.end not in get_args(End):
            raise UsageError(f"end is {self.end!r}.{did_you_mean(self.end, list(get_args(End)))}")

    def plan(self, body: Mapping[str, Any], *, chat: bool, say: Say) -> Sequence[Step]:
        """The steps for this request; ``say`` is ``speak`` with a model, perhaps with a memory."""
        if self.speech is None:
            return self.steps
        return (*say(self.speech, wanted(self.speech, body, chat=chat)), *self.steps)

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        out = {k: v for k, v in self.__dict__.items() if k not in ("steps", "speech")}
        out["steps"] = [s.to_dict() for s in self.steps]
        out["speech"] = None if self.speech is None else dict(self.speech.__dict__)
        return out

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Reply:
        """Inverse of ``to_dict``. Raises UsageError for an unknown field."""
        _only(row, set(cls.__dataclass_fields__), "reply")
        steps = tuple(Step.from_dict(s) for s in row.get("steps") or ())
        speech = row.get("speech")
        if speech is not None:
            _only(speech, set(Speech.__dataclass_fields__), "speech")
            speech = Speech(**speech)
        return cls(**{**row, "steps": steps, "speech": speech})


@dataclass(frozen=True)
class Script:
    """Replies in turn, from the start again after the last. ``slots`` requests are served at once
    (None: no limit); the others wait their turn, as behind a server that is full.
    """

    replies: tuple[Reply, ...] = (Reply(speech=Speech()),)
    model: str = "mock"
    slots: int | None = None
    extra_metrics: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON form, as ``--script FILE`` reads it."""
        return {
            "model": self.model,
            "slots": self.slots,
            "replies": [r.to_dict() for r in self.replies],
            "extra_metrics": dict(self.extra_metrics),
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Script:
        """Inverse of ``to_dict``. Raises UsageError for an unknown field or no reply."""
        _only(raw, set(cls.__dataclass_fields__), "script")
        replies = tuple(Reply.from_dict(r) for r in raw.get("replies") or ())
        if not replies:
            raise UsageError("the script has no replies; give at least one")
        return cls(**{**raw, "replies": replies})


def _only(row: Mapping[str, Any], allowed: set[str], what: str) -> None:
    for key in row:
        if key not in allowed:
            raise UsageError(f"{what} has an unknown field {key!r}.{did_you_mean(key, [*allowed])}")


def event(data: Any, *, after_s: float = 0.0, mark: str | None = None) -> Step:
    """One server-sent event; dicts are dumped as JSON. The mark is found from the payload."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return Step(after_s, f"data: {text}\n\n".encode(), mark or _mark(data))


def _mark(data: Any) -> str:
    if not isinstance(data, Mapping):
        return "done" if data == "[DONE]" else "other"
    if data.get("error"):
        return "error"
    for choice in data.get("choices") or ():
        delta = choice.get("delta") or {"content": choice.get("text")}
        if any(v for k, v in delta.items() if k != "role"):
            return "content"
    return "usage" if data.get("usage") and not data.get("choices") else "empty"


def payload(
    text: str | None = None,
    *,
    chat: bool = True,
    finish: str | None = None,
    role: bool = False,
    usage: Mapping[str, int] | None = None,
    model: str = "mock",
) -> dict[str, Any]:
    """One stream payload in OpenAI's form; ``text`` None and no role or finish: no choices."""
    out: dict[str, Any] = {
        "id": "mock-0",
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": 0,
        "model": model,
        "choices": [],
    }
    if text is not None or role or finish:
        delta = {"content": text or ""}
        if role:
            delta["role"] = "assistant"
        inner = {"delta": delta} if chat else {"text": text or ""}
        out["choices"] = [{"index": 0, **inner, "finish_reason": finish}]
    if usage is not None:
        out["usage"] = dict(usage)
    return out


@dataclass(frozen=True)
class Wanted:
    """What of a request shapes a Speech: equal wants get equal steps."""

    words: int
    tokens: int
    usage: Literal["none", "final", "every"]
    chat: bool


Say = Callable[[Speech, Wanted], Sequence[Step]]


def wanted(speech: Speech, body: Mapping[str, Any], *, chat: bool) -> Wanted:
    """Read a request body."""
    options = body.get("stream_options") or {}
    asked = speech.usage == "asked" and options.get("include_usage")
    return Wanted(
        words=_prompt_words(body),
        tokens=int(body.get("max_tokens") or body.get("max_completion_tokens") or speech.tokens),
        usage="none"
        if not asked
        else "every"
        if options.get("continuous_usage_stats")
        else "final",
        chat=chat,
    )


def speak(speech: Speech, want: Wanted, *, model: str) -> tuple[Step, ...]:
    """The steps of a Speech for one request."""
    out, every, total = [], want.usage == "every", want.tokens

    def usage(done: int) -> dict[str, int]:
        whole = want.words + done
        return {"prompt_tokens": want.words, "completion_tokens": done, "total_tokens": whole}

    wait_s = speech.ttft_s + want.words * speech.prefill_s_per_word
    if want.chat and speech.role_chunk:
        data = payload(role=True, usage=usage(0) if every else None, model=model)
        out.append(event(data, after_s=wait_s))
        wait_s = 0.0
    done = 0
    while done < total:
        size = min(speech.tokens_per_chunk, total - done)
        done += size
        text = "".join(f" t{i}" for i in range(done - size, done))
        ends = "length" if done == total else None
        counted = usage(done) if every else None
        data = payload(text, chat=want.chat, finish=ends, usage=counted, model=model)
        out.append(event(data, after_s=wait_s))
        wait_s = speech.gap_s
    if want.usage != "none":
        out.append(event(payload(chat=want.chat, usage=usage(total), model=model)))
    return (*out, event("[DONE]"))


def _prompt_words(body: Mapping[str, Any]) -> int:
    """The mock's stand-in for a tokenizer: words, or token ids where the prompt is ids."""
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        return len(prompt)
    texts: Sequence[Any] = [prompt or ""]
    if prompt is None:
        texts = [m.get("content") or "" for m in body.get("messages") or ()]
    return sum(len(str(t).split()) for t in texts)


def split(step: Step, *, at: Sequence[int], gap_s: float = 0.0) -> tuple[Step, ...]:
    """The same bytes cut at these offsets, the pieces ``gap_s`` apart."""
    edges = [0, *at, len(step.raw)]
    pieces = [step.raw[a:b] for a, b in itertools.pairwise(edges)]
    first = replace(step, raw=pieces[0])
    return (first, *(Step(gap_s, piece, "piece") for piece in pieces[1:]))
