"""A client that lets its reply lie in the socket long after the server has finished it."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from turbo_lab.client.reply import ReplyReader
from turbo_lab.client.sse import SseParser
from turbo_lab.client.stream import Target
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.workload.request import Request

FIRST_BYTES = 64  # read before the pause: less than the first event
BLOCK_BYTES = 64 * 1024
POLL_S = 0.02


def read_slowly(
    request: Request,
    *,
    target: Target,
    finished: Callable[[], bool],
    pauses: float,
) -> Timeline:
    """Send a request, read a few bytes, and only go on when the server is long done.

    Args:
        request: a streaming request.
        target: the server; its ``timeout_s`` bounds each read and the wait.
        finished: whether the server has counted the request as ended.
        pauses: how many times that long the client waits then; 0 reads at once, as a good client.

    Raises OSError when the connection fails.
    """
    parts = urlsplit(target.url(request.path))
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port, timeout=target.timeout_s
    )
    reader, parser, sent_s = ReplyReader(), SseParser(), time.perf_counter()
    try:
        body = json.dumps(request.body()).encode()
        connection.request("POST", parts.path, body, target.request_headers(request.request_id))
        reply = connection.getresponse()
        block = reply.read1(FIRST_BYTES)
        if pauses:
            _wait(finished, sent_s, timeout_s=target.timeout_s)
            time.sleep(pauses * (time.perf_counter() - sent_s))
        while block:
            for name, data in parser.feed(block):
                reader.take(name, data, t_s=time.perf_counter())
            block = reply.read1(BLOCK_BYTES)
        for name, data in parser.close():
            reader.take(name, data, t_s=time.perf_counter())
    finally:
        connection.close()
    return Timeline(
        sent_s=sent_s, connected_s=sent_s, status_code=reply.status, chunks=tuple(reader.chunks),
        finish_reason=reader.finish_reason, saw_done=reader.saw_done, usage=reader.usage,
        closed_s=time.perf_counter(), error=reader.error, request_id=request.request_id,
        text=reader.text,
    )  # fmt: skip


def _wait(finished: Callable[[], bool], since_s: float, *, timeout_s: float) -> None:
    while not finished() and time.perf_counter() - since_s < timeout_s:
        time.sleep(POLL_S)
