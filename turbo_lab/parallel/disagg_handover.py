"""What became of a handed-over request, the longest waits on its way, and errors as JSON."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

ERRORS = (aiohttp.ClientError, OSError, TimeoutError)
ENDED = re.compile(rb'"finish_reason"\s*:\s*"|"error"\s*:\s*[{"]')
DONE = b"data: [DONE]"
TAIL_BYTES = 40  # a finish reason may be cut by the network


@dataclass(frozen=True)
class Waits:
    """Longest waits in seconds: to connect, for a prefill, and between two pieces of a reply."""

    connect_s: float = 5.0
    prefill_s: float = 120.0
    silence_s: float = 180.0


@dataclass
class Handover:
    """What became of one request, times on ``time.perf_counter``.

    ``reason``: why nothing was handed over (None: blocks were offered). ``error``: what the client
    was told (None: it got its answer).
    """

    request_id: str
    started_s: float
    prefill_s: float | None = None
    offered_tokens: int = 0
    first_byte_s: float | None = None
    ended_s: float | None = None
    status: int | None = None
    reason: str | None = None
    error: str | None = None


class Refused(Exception):  # noqa: N818 (control flow: the producer's answer goes to the client)
    """The request itself is wrong, as the first server has found."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status, self.body = status, body


class ReplyWatch:
    """Reads along a streamed reply: did it come to its end, or did its server only stop?

    vLLM closes a stream in good order, ``[DONE]`` included, when it is shut down in mid-reply. Only
    a finish reason says that the reply is whole.
    """

    def __init__(self) -> None:
        self.finished = False
        self._tail = b""

    def take(self, piece: bytes) -> bytes:
        """What may go on to the client: the piece, without a ``[DONE]`` that nothing has earned."""
        text = self._tail + piece
        self.finished = self.finished or bool(ENDED.search(text))
        self._tail = text[-TAIL_BYTES:]
        return piece if self.finished else piece.partition(DONE)[0]


class ClientLeftError(Exception):
    """Nobody is there any more to read the reply."""


@contextlib.contextmanager
def noted(record: Handover) -> Iterator[None]:
    """A failed prefill is no failed request: note why, and go on without it."""
    try:
        yield
    except TimeoutError:
        record.reason = "the prefilling server was too slow"
    except (*ERRORS, ValueError) as error:
        record.reason = f"the prefilling server failed: {words(error)}"


def words(error: BaseException) -> str:
    """An error in words; some have none but their name."""
    return str(error) or type(error).__name__


def error_body(status: int, message: str) -> dict[str, Any]:
    """The body of an error, as OpenAI-compatible servers write it."""
    return {"error": {"message": message, "type": "disaggregation_error", "code": status}}


def error_response(status: int, message: str) -> web.Response:
    """The same as an answer."""
    return web.json_response(error_body(status, message), status=status)
