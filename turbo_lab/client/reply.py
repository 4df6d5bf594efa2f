"""From the payloads of one stream to chunks, text, usage and the finish reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from turbo_lab.metrics.timeline import VISIBLE_KINDS, Chunk

DONE = b"[DONE]"
ERROR_TEXT_CHARS = 500


class ReplyReader:
    """Collects one reply. One payload gives one ``Chunk``; token counts only as the server says.

    With continuous usage a chunk's tokens are the growth of ``completion_tokens``. A chunk with
    ``token_ids`` gives their number. Otherwise they are unknown (None).
    """

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.finish_reason: str | None = None
        self.saw_done = False
        self.usage: dict[str, Any] | None = None
        self.error: str | None = None
        self._text: list[str] = []
        self._counted = 0
        self._continuous = True

    @property
    def text(self) -> str:
        """The visible reply so far (content; reasoning and tool text are not in it)."""
        return _whole("".join(self._text))

    def take(self, event: bytes, data: bytes, *, t_s: float) -> None:
        """Account for one event that arrived at ``t_s``."""
        stripped = data.strip()
        if not stripped:
            return
        if stripped == DONE:
            self.saw_done = True
            self.chunks.append(Chunk(t_s, None, "done"))
            return
        payload = _parse(stripped)
        if payload is None or event == b"error" or _is_error(payload):
            self._fail(payload, stripped, t_s)
            return
        self._take_payload(payload, t_s)

    def _fail(self, payload: Mapping[str, Any] | None, raw: bytes, t_s: float) -> None:
        self.chunks.append(Chunk(t_s, None, "error"))
        if self.error is None:
            what = "the server sent an error" if payload is not None else "not JSON"
            self.error = f"{what} in the stream: {raw.decode(errors='replace')[:ERROR_TEXT_CHARS]}"

    def _take_payload(self, payload: Mapping[str, Any], t_s: float) -> None:
        choices, usage = payload.get("choices"), payload.get("usage")
        if type(choices) is not list or not all([type(c) is dict for c in choices]):
            choices = _mappings(choices)
        kind, ids = "usage" if usage and not choices else "other", 0
        for choice in choices:
            found = self._take_choice(choice)
            if _RANK[found] > _RANK[kind]:  # Of several choices the kind that matters more.
                kind = found
            if "token_ids" in choice:
                ids += _length(choice["token_ids"])
        self.chunks.append(Chunk(t_s, self._count(usage, ids, kind), kind))

    def _take_choice(self, choice: Mapping[str, Any]) -> str:
        if reason := choice.get("finish_reason"):
            self.finish_reason = str(reason)
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = {"content": choice.get("text")}
        text = delta.get("content") or delta.get("refusal")
        if text:
            self._text.append(str(text))
            return "content"
        if delta.get("reasoning_content") or delta.get("reasoning"):
            return "reasoning"
        if delta.get("tool_calls") or delta.get("function_call"):
            return "tool"
        return "role" if delta.get("role") and not reason else "empty"

    def _count(self, usage: Any, ids: int, kind: str) -> int | None:
        """Tokens that this chunk brings: by continuous usage, else by its token ids, else None.

        One usage object at the end counts the whole reply, not its chunk: the growth is a chunk's
        own only while every chunk with text so far came with a count.
        """
        total = None
        if isinstance(usage, dict):
            total = usage.get("completion_tokens")
            if wrong := _wrong_count(usage):
                self.error = self.error or wrong
                total = None
            else:
                self.usage = usage
        if total is None or total < self._counted:
            self._continuous = self._continuous and kind not in VISIBLE_KINDS
            return ids or None
        grown, self._counted = total - self._counted, total
        return grown if self._continuous else ids or None


def _parse(raw: bytes) -> Mapping[str, Any] | None:
    try:
        payload = from_json(raw)  # Twice as fast as json, but stricter: lone surrogates, depth.
    except ValueError:
        try:
            payload = json.loads(raw.decode())
        except (ValueError, RecursionError):
            return None
    return payload if isinstance(payload, dict) else None


def _is_error(payload: Mapping[str, Any]) -> bool:
    return bool(payload.get("error")) or payload.get("object") == "error"


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    """The dicts of a list; anything else that garbage may hold is dropped."""
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0


def _whole(text: str) -> str:
    """The text with the halves of characters that were sent apart (JSON's ``\\ud83d``) joined.

    A half that stays alone becomes U+FFFD: no file and no digest can hold it.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _wrong_count(usage: Mapping[str, Any]) -> str | None:
    for name in ("completion_tokens", "prompt_tokens"):
        if (value := usage.get(name)) is not None and not _is_count(value):
            return f"usage says {value!r} {name.replace('_', ' ')}"
    return None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_RANK = {"content": 6, "reasoning": 5, "tool": 4, "role": 3, "empty": 2, "usage": 1, "other": 0}
