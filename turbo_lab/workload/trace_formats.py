"""The columns of public traces, and how one row becomes a request.

Azure (2023, 2024): https://github.com/Azure/AzurePublicDataset. BurstGPT:
https://github.com/HPMLL/BurstGPT. Mooncake: https://github.com/kvcache-ai/Mooncake. Qwen-Bailian:
https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.workload.trace_request import TraceRequest

MOST_TOKENS = 2**31 - 1
MOST_BLOCKS = 1 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Parse = Callable[[Any], TraceRequest | None]  # None: a row that is no request; it is skipped.


class BadValueError(ValueError):
    """A value that no request can have: its name, what was found, what is allowed."""

    def __init__(self, name: str, value: Any, allowed: str) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        super().__init__(f"{name} is {shown}; allowed: {allowed}")


@dataclass(frozen=True)
class TraceFormat:
    """One layout. ``parser(columns)`` makes the function that reads a row.

    ``names``: alternatives for the columns that must be there, the first set that fits is taken.
    A CSV row is a list of cells in the order of the header, a JSON row a mapping.
    """

    name: str
    kind: str
    names: tuple[tuple[str, ...], ...]
    parser: Callable[[Sequence[str]], Parse]

    def fits(self, columns: Collection[str]) -> bool:
        """Whether a file with these columns can be read."""
        return any(set(wanted) <= set(columns) for wanted in self.names)


def whole(name: str, text: Any, *, least: int) -> int:
    """A count from a CSV cell or a JSON value. Raises BadValueError."""
    if type(text) is int:
        value = text
    elif isinstance(text, str) and text.strip().isdecimal() and len(text) < 20:
        value = int(text)
    else:
        raise BadValueError(name, text, f"a whole number from {least}")
    if not least <= value <= MOST_TOKENS:
        raise BadValueError(name, text, f"a whole number from {least} to {MOST_TOKENS:,}")
    return value


def seconds(name: str, text: Any) -> float:
    """A time from a CSV cell or a JSON value, finite. Raises BadValueError."""
    try:
        if isinstance(text, bool):
            raise TypeError
        value = float(text)
    except (TypeError, ValueError):
        raise BadValueError(name, text, "a number of seconds or milliseconds") from None
    if not math.isfinite(value):
        raise BadValueError(name, text, "a finite time")
    return value


def stamp(name: str, text: str) -> float:
    """Seconds since 1970 of an ISO time; one without a zone is taken as UTC."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        allowed = "an ISO time such as 2023-11-16 18:15:46.6805900"
        raise BadValueError(name, text, allowed) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when - _EPOCH).total_seconds()


def blocks(ids: Any, *, tokens: int, size: int) -> tuple[int, ...]:
    """Hashes of prompt blocks of ``size`` tokens, as many as the prompt has. BadValueError."""
    if not isinstance(ids, list) or any(type(i) is not int for i in ids):
        raise BadValueError("hash_ids", ids, "a list of whole numbers")
    if not tokens // size <= len(ids) <= -(-tokens // size):
        allowed = f"{-(-tokens // size)} blocks of {size} tokens for a prompt of {tokens}"
        raise BadValueError("hash_ids", f"{len(ids)} blocks", allowed)
    return tuple(ids)


def _azure(columns: Sequence[str]) -> Parse:
    when, prompt, reply = map(columns.index, ("TIMESTAMP", "ContextTokens", "GeneratedTokens"))

    def parse(cells: list[str]) -> TraceRequest:
        return TraceRequest(
            stamp("TIMESTAMP", cells[when]),
            whole("ContextTokens", cells[prompt], least=1),
            whole("GeneratedTokens", cells[reply], least=0),
        )

    return parse


def _burstgpt(columns: Sequence[str]) -> Parse:
    when, model, prompt, reply = map(
        columns.index, ("Timestamp", "Model", "Request tokens", "Response tokens")
    )
    session = columns.index("Session ID") if "Session ID" in columns else None

    def parse(cells: list[str]) -> TraceRequest | None:
        tokens = whole("Request tokens", cells[prompt], least=0)
        if not tokens:  # The published files have such rows; no engine takes an empty prompt.
            return None
        return TraceRequest(
            seconds("Timestamp", cells[when]),
            tokens,
            whole("Response tokens", cells[reply], least=0),
            tenant=cells[model],
            session="" if session is None else cells[session],
        )

    return parse


def _mooncake(columns: Sequence[str]) -> Parse:
    def parse(row: Mapping[str, Any]) -> TraceRequest:
        tokens = whole("input_length", row["input_length"], least=1)
        ids = blocks(row["hash_ids"], tokens=tokens, size=512) if "hash_ids" in row else ()
        return TraceRequest(
            seconds("timestamp", row["timestamp"]) / 1000,
            tokens,
            whole("output_length", row["output_length"], least=0),
            block_ids=ids,
            block_tokens=512 if ids else 0,
        )

    return parse


def _qwen(columns: Sequence[str]) -> Parse:
    roots: dict[int, int] = {}  # chat to the first chat of its conversation

    def parse(row: Mapping[str, Any]) -> TraceRequest:
        tokens = whole("input_length", row["input_length"], least=1)
        chat, parent = (whole(n, row[n], least=-1) for n in ("chat_id", "parent_chat_id"))
        roots[chat] = chat if parent == -1 else roots.get(parent, parent)
        return TraceRequest(
            seconds("timestamp", row["timestamp"]),
            tokens,
            whole("output_length", row["output_length"], least=0),
            block_ids=blocks(row["hash_ids"], tokens=tokens, size=16),
            block_tokens=16,
            tenant=str(row.get("type", "")),
            session=str(roots[chat]),
        )

    return parse


def _own_csv(columns: Sequence[str]) -> Parse:
    length = "prompt_tokens" if "prompt_tokens" in columns else "input_tokens"
    when, prompt, reply = map(columns.index, ("arrival_s", length, "output_tokens"))

    def parse(cells: list[str]) -> TraceRequest:
        return TraceRequest(
            seconds("arrival_s", cells[when]),
            whole(length, cells[prompt], least=1),
            whole("output_tokens", cells[reply], least=0),
        )

    return parse


def _own_json(columns: Sequence[str]) -> Parse:
    length = "prompt_tokens" if "prompt_tokens" in columns else "input_tokens"

    def parse(row: Mapping[str, Any]) -> TraceRequest:
        tokens, ids, size = whole(length, row[length], least=1), (), 0
        if row.get("block_ids"):
            size = whole("block_tokens", row.get("block_tokens"), least=1)
            ids = blocks(row["block_ids"], tokens=tokens, size=size)
        priority = row.get("priority", 0)
        if type(priority) is not int:
            raise BadValueError("priority", priority, "a whole number, lower goes first")
        return TraceRequest(
            seconds("arrival_s", row["arrival_s"]),
            tokens,
            whole("output_tokens", row["output_tokens"], least=0),
            block_ids=ids,
            block_tokens=size,
            tenant=str(row.get("tenant", "")),
            priority=priority,
            session=str(row.get("session", "")),
        )

    return parse


_OWN = (
    ("arrival_s", "prompt_tokens", "output_tokens"),
    ("arrival_s", "input_tokens", "output_tokens"),
)
_QWEN = ("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "hash_ids")
# Qwen-Bailian has Mooncake's columns and more: it is asked first.
FORMATS: tuple[TraceFormat, ...] = (
    TraceFormat("azure", "csv", (("TIMESTAMP", "ContextTokens", "GeneratedTokens"),), _azure),
    TraceFormat(
        "burstgpt",
        "csv",
        (("Timestamp", "Model", "Request tokens", "Response tokens"),),
        _burstgpt,
    ),
    TraceFormat("qwen-bailian", "jsonl", (_QWEN,), _qwen),
    TraceFormat("mooncake", "jsonl", (("timestamp", "input_length", "output_length"),), _mooncake),
    TraceFormat("turbo-lab", "csv", _OWN, _own_csv),
    TraceFormat("turbo-lab", "jsonl", _OWN, _own_json),
)
FORMAT_NAMES = ("auto", *sorted({f.name for f in FORMATS}))


def find_format(columns: Collection[str], *, kind: str, wanted: str = "auto") -> TraceFormat:
    """The format of a file with these columns; ``wanted`` restricts it to one name.

    Raises UsageError naming what was found and what is needed.
    """
    if wanted not in FORMAT_NAMES:
        raise UsageError(f"format is {wanted!r}.{did_you_mean(wanted, list(FORMAT_NAMES))}")
    allowed = [f for f in FORMATS if wanted in ("auto", f.name)]
    for candidate in allowed:
        if candidate.kind == kind and candidate.fits(columns):
            return candidate
    found = ", ".join(list(columns)[:9]) or "none"
    needed = "; ".join(f"{f.name} ({f.kind}): {', '.join(f.names[0])}" for f in allowed)
    raise UsageError(f"the columns are {found} ({kind}); wanted {needed}.")
