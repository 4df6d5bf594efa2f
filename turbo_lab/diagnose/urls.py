"""The ``/metrics`` page of a running server, as what changed between two readings."""

from __future__ import annotations

import math
import os
import time
import urllib.parse

from turbo_lab.core.errors import RecordError, UsageError
from turbo_lab.diagnose.page_rules import difference
from turbo_lab.diagnose.pages import Page, parse_page
from turbo_lab.engines.base import http_get

TIMEOUT_S = 10.0


class UnreachableError(RecordError):
    """Nothing answers at an address. ``address`` and ``reason`` are the proof."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            f"{address} does not answer ({reason}). Is the server up? Give its log instead."
        )
        self.address, self.reason = address, reason


def read_url(url: str, *, interval_s: float = 2.0) -> Page:
    """The ``/metrics`` page of a server, as what changed between two readings.

    Where nothing happened between them, the page since the server's start is returned; an interval
    of 0 reads once. The key in TURBO_LAB_API_KEY is sent, where it is set.

    Raises:
        UsageError: an impossible address, or an interval that is no time.
        UnreachableError: nothing answers.
        RecordError: what answers is no page of an inference server.
    """
    check_interval(interval_s)
    address = _metrics_address(url)
    first = parse_page(_get(address), source=url)
    if not first.is_server:
        raise RecordError(f"{address} has no metrics of an inference server.")
    if interval_s == 0:
        return first
    time.sleep(interval_s)
    second = parse_page(_get(address), source=url)
    change = difference(first, second)
    moved = (change.total("generation_tokens") or 0) + (change.total("finished") or 0)
    return change if moved and change.mean("e2e") else second


def check_interval(interval_s: float) -> None:
    """Raise UsageError for an interval that is negative, infinite or no number."""
    if not (math.isfinite(interval_s) and interval_s >= 0):
        raise UsageError(f"--interval-s {interval_s}; allowed: 0 or more seconds, not infinite")


def _metrics_address(url: str) -> str:
    """The address of the page: ``/metrics`` where the URL names no path. Raises UsageError."""
    try:
        parts = urllib.parse.urlsplit(url)
        if not parts.hostname or parts.port == 0 or any(c <= " " for c in url):
            raise ValueError("no host, port 0 or a blank")
        if parts.username is not None:
            raise ValueError("a name or password; give a key in TURBO_LAB_API_KEY")
    except ValueError as error:
        raise UsageError(
            f"{url!r} is no address ({error}). Give http://HOST:PORT, PORT from 1 to 65535."
        ) from error
    return url if parts.path not in ("", "/") else url.rstrip("/") + "/metrics"


def _get(address: str) -> str:
    from turbo_lab.client.stream import API_KEY_VARIABLE

    parts = urllib.parse.urlsplit(address)
    path = urllib.parse.urlunsplit(("", "", parts.path, parts.query, ""))
    key = os.environ.get(API_KEY_VARIABLE) or None
    try:
        status, body = http_get(
            f"{parts.scheme}://{parts.netloc}", path, timeout_s=TIMEOUT_S, api_key=key, https=True
        )
    except (OSError, ValueError) as error:
        raise UnreachableError(address, str(error) or type(error).__name__) from error
    if status in (401, 403):
        raise RecordError(f"{address} answered {status}: give the key in {API_KEY_VARIABLE}.")
    if status != 200:
        raise RecordError(f"{address} answered {status}; give the address of the /metrics page.")
    return body.decode("utf-8", "replace")
