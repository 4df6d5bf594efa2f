"""One request to an OpenAI-compatible server, as data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from turbo_lab.core.errors import UsageError, did_you_mean

Endpoint = Literal["chat", "completions"]
UsageWanted = Literal["continuous", "final", "none"]
PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
Prompt = str | Sequence[Mapping[str, Any]] | Sequence[int]


@dataclass(frozen=True)
class Request:
    """What is sent. The body is fully determined by these fields.

    Attributes:
        prompt: text; chat messages (dicts with role and content); or token ids (completions only).
        model: the name the server knows; ``""`` leaves the field out.
        max_tokens: upper bound of the output, in tokens; None leaves it to the server.
        endpoint: ``chat`` or ``completions``.
        request_id: names it in timelines, messages and the ``X-Request-Id`` header.
        temperature: 0.0 asks for greedy decoding; None leaves it to the server.
        usage: ``continuous`` asks for token counts on every chunk (vLLM and SGLang give them,
            others ignore it), ``final`` for one usage chunk at the end, ``none`` for nothing.
        extra: further body fields (``ignore_eos``, ``priority``, ``seed`` ...); they win.
        labels: what the request is part of (``tenant``, ``turn`` ...); noted in its Timeline, never
            sent.
    """

    prompt: Prompt
    model: str = ""
    max_tokens: int | None = None
    endpoint: Endpoint = "chat"
    request_id: str | None = None
    temperature: float | None = 0.0
    usage: UsageWanted = "continuous"
    extra: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str | int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what no server accepts."""
        for what, value, allowed in (
            ("endpoint", self.endpoint, get_args(Endpoint)),
            ("usage", self.usage, get_args(UsageWanted)),
        ):
            if value not in allowed:
                raise UsageError(f"{what} is {value!r}.{did_you_mean(str(value), list(allowed))}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"max_tokens is {self.max_tokens}, it must be at least 1")
        if self.endpoint == "chat" and _is_token_ids(self.prompt):
            raise UsageError("token ids need endpoint='completions': chat takes text or messages")
        if self.endpoint == "completions" and _is_messages(self.prompt):
            raise UsageError("chat messages need endpoint='chat'")

    @property
    def path(self) -> str:
        """URL path of the endpoint, from the server's root."""
        return PATHS[self.endpoint]

    def body(self) -> dict[str, Any]:
        """The JSON body of a streaming request."""
        out: dict[str, Any] = {"model": self.model} if self.model else {}
        if self.endpoint == "completions":
            out["prompt"] = self.prompt if isinstance(self.prompt, str) else list(self.prompt)
        else:
            out["messages"] = self._messages()
        if self.max_tokens is not None:
            out["max_tokens"] = self.max_tokens
        if self.temperature is not None:
            out["temperature"] = self.temperature
        out["stream"] = True
        if self.usage != "none":
            out["stream_options"] = {"include_usage": True}
        if self.usage == "continuous":
            out["stream_options"]["continuous_usage_stats"] = True
        return {**out, **self.extra}

    def _messages(self) -> list[dict[str, Any]]:
        if isinstance(self.prompt, str):
            return [{"role": "user", "content": self.prompt}]
        return [dict(message) for message in self.prompt]  # type: ignore[call-overload]

    def prompt_key(self) -> str:
        """Digest of the prompt alone: two requests with one key share a prefix-cache entry."""
        plain = self.prompt if isinstance(self.prompt, str) else list(self.prompt)
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _is_token_ids(prompt: Prompt) -> bool:
    return not isinstance(prompt, str) and len(prompt) > 0 and isinstance(prompt[0], int)


def _is_messages(prompt: Prompt) -> bool:
    return not isinstance(prompt, str) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def workload_digest(requests: Sequence[Request]) -> str:
    """SHA-256 of all bodies in order: equal digests mean the same work was asked for."""
    digest = hashlib.sha256()
    for request in requests:
        line = json.dumps([request.path, request.body()], sort_keys=True, ensure_ascii=False)
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()
