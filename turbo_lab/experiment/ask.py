"""Small bounded GET requests to a server under test: for facts, counters and liveness."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from typing import Any

from turbo_lab.client.stream import Target
from turbo_lab.core.direct import open_direct

TIMEOUT_S = 5.0
MAX_BYTES = 8 * 2**20
_STEP_BYTES = 64 * 1024


def get(target: Target, path: str, *, timeout_s: float = TIMEOUT_S) -> bytes | None:
    """Body of a 200 answer within ``timeout_s`` seconds and 8 MiB; None for anything else."""
    headers = {**target.request_headers(None), "Accept": "*/*"}
    request = urllib.request.Request(target.url(path), headers=headers)
    deadline = time.monotonic() + timeout_s
    try:
        with open_direct(request, timeout_s=timeout_s) as answer:
            return _body(answer, deadline) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError, urllib.error.URLError):
        return None


def _body(answer: Any, deadline: float) -> bytes | None:
    """Read until the end; a server that trickles meets the deadline, not only a time-out."""
    parts, size = [], 0
    while block := answer.read1(_STEP_BYTES):
        parts.append(block)
        size += len(block)
        if size > MAX_BYTES or time.monotonic() > deadline:
            return None
    return b"".join(parts)


def get_json(target: Target, path: str, *, timeout_s: float = TIMEOUT_S) -> Any | None:
    """The JSON that a path answers, None when it does not."""
    body = get(target, path, timeout_s=timeout_s)
    if body is None:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return None


def reachable(target: Target, *, timeout_s: float = TIMEOUT_S) -> bool:
    """Whether anything accepts a connection at the target's address."""
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(target.base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=timeout_s):
            return True
    except OSError:
        return False
