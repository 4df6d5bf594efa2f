"""Token ids of prompts and replies, by the server's own tokenizer (``POST /tokenize``)."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.direct import open_direct
from turbo_lab.core.errors import EngineError
from turbo_lab.metrics.definitions import output_tokens
from turbo_lab.metrics.timeline import Timeline

TIMEOUT_S = 30.0
UNKNOWN_END = -1  # stands for the end mark, which has no text and which no prompt holds


@dataclass(frozen=True)
class ReadReply:
    """A reply as ids. ``exact``: their number is the one that the server counted itself.

    Text read back may be cut into other tokens than it was written in; then ``exact`` is False.
    """

    ids: tuple[int, ...]
    exact: bool


def chat_tokens(server: Any, text: str) -> list[int]:
    """One user message in the model's chat format, up to where the reply begins."""
    message = {"role": "user", "content": text}
    return _tokenize(server, {"messages": [message], "add_generation_prompt": True})


def text_tokens(server: Any, text: str) -> list[int]:
    """Plain text, without special tokens."""
    return _tokenize(server, {"prompt": text, "add_special_tokens": False})


def read_reply(server: Any, timeline: Timeline) -> ReadReply:
    """The ids of a reply from its text; its end mark, if it ended by itself, is one more."""
    ids = text_tokens(server, timeline.text or "")
    if timeline.finish_reason == "stop":
        ids.append(UNKNOWN_END)
    return ReadReply(tuple(ids), exact=len(ids) == output_tokens(timeline))


def read_replies(server: Any, timelines: Sequence[Timeline]) -> list[dict[str, Any]]:
    """``read_reply`` of each, as plain data for a record."""
    found = (read_reply(server, timeline) for timeline in timelines)
    return [{"ids": list(reply.ids), "exact": reply.exact} for reply in found]


def _tokenize(server: Any, body: dict[str, Any]) -> list[int]:
    """Raises EngineError when the server does not answer with ids."""
    request = urllib.request.Request(
        f"{server.base_url}/tokenize",
        data=json.dumps({"model": server.model_name, **body}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with open_direct(request, timeout_s=TIMEOUT_S) as answer:
            return [int(token) for token in json.loads(answer.read())["tokens"]]
    except (OSError, ValueError, KeyError, urllib.error.URLError) as error:
        raise EngineError(f"POST /tokenize: {type(error).__name__}: {error}") from error
