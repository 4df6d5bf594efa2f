"""Rows that a running server answers itself: requests that change nothing, without a key."""

from __future__ import annotations

import time
import urllib.parse
from collections import Counter
from dataclasses import dataclass

from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.engines.base import http_get
from turbo_lab.engines.safety.machine import (
    Listener,
    listeners,
    loopback_row,
    process_of,
    root_row,
)
from turbo_lab.engines.safety.plan import is_loopback
from turbo_lab.engines.safety.row import Check, by_exposure, row
from turbo_lab.engines.safety.source import guarded_prefixes

TIMEOUT_S = 10.0
WRONG_KEY = "turbo-lab-wrong-key"
GUARDED = "/v1/models"
# Outside the guard of vLLM's key. A path that wants POST answers GET with 405 where it exists.
UNGUARDED = ("/metrics", "/tokenize", "/invocations", "/load", "/version", "/openapi.json")
DEVELOPER = ("/server_info", "/collective_rpc", "/update_weights", "/sleep")
OPEN, CLOSED = (200, 405), (401, 403)


@dataclass(frozen=True)
class Address:
    """Where a server answers: its root without a path, host and port."""

    root: str
    host: str
    port: int

    @property
    def encrypted(self) -> bool:
        """True for https."""
        return self.root.startswith("https://")


def address_of(url: str) -> Address:
    """Parts of a server's address. Raises UsageError for anything but http(s)://HOST[:PORT]."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        parts, port = urllib.parse.urlsplit(""), 0
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise UsageError(f"--url {url}; allowed: http://HOST:PORT or https://HOST:PORT")
    if parts.path.rstrip("/") not in ("", "/v1"):
        raise UsageError(f"--url {url}; leave the path away: the checklist asks several paths")
    return Address(f"{parts.scheme}://{parts.netloc}", parts.hostname, port)


def live_rows(url: str, *, burst: int = 0) -> list[Check]:
    """Rows about the server at ``url``: sockets, process, key, open paths, rate limit.

    ``burst``: so many GET requests are sent at once to see a rate limit; 0 sends none.
    Raises EngineError when nothing answers there, UsageError for an impossible address.
    """
    at = address_of(url)
    first = _status(at, GUARDED)
    sockets = listeners(at.port) if is_loopback(at.host) else []
    where = _where(at, sockets)
    exposed = where.status == "fail" or (at.encrypted and not is_loopback(at.host))
    process = process_of(sockets)
    return [
        where,
        _encrypted(at, exposed=exposed),
        _key(at, first, exposed=exposed),
        _paths(at, exposed=exposed),
        _developer(at, exposed=exposed),
        rate_row(at, burst=burst, exposed=exposed),
        root_row(process.uid if process else None, running=True, exposed=exposed),
    ]


def _where(at: Address, sockets: list[Listener]) -> Check:
    if is_loopback(at.host):
        return loopback_row(sockets, port=at.port)
    if at.encrypted:
        text = f"{at.host} speaks TLS, as a proxy does; what stands behind it is not seen from here"
        return row("loopback_only", "unknown", text)
    return row("loopback_only", "fail", f"it answers at {at.host}, which is not loopback")


def _encrypted(at: Address, *, exposed: bool) -> Check:
    if at.encrypted:
        return row("encrypted", "ok", "it answers over TLS, and the certificate is valid")
    if exposed:
        return row("encrypted", "fail", "it answers plain HTTP on an address that others reach")
    return row("encrypted", "ok", "plain HTTP on loopback; TLS is the proxy's part")


def _key(at: Address, without: int, *, exposed: bool) -> Check:
    wrong = _status(at, GUARDED, api_key=WRONG_KEY)
    text = f"{GUARDED} answers {without} without a key, {wrong} with a wrong one"
    if without in OPEN or wrong in OPEN:
        return row("api_key", by_exposure(exposed), text)
    return row("api_key", "ok" if without in CLOSED and wrong in CLOSED else "unknown", text)


def _paths(at: Address, *, exposed: bool) -> Check:
    prefixes, source = guarded_prefixes()
    found = {path: _status(at, path) for path in UNGUARDED}
    open_ones = [path for path, status in found.items() if status in OPEN]
    if not open_ones:
        told = ", ".join(f"{path} {status}" for path, status in found.items())
        return row("unguarded_paths", "ok", f"none of them answers without a key: {told}")
    text = (
        f"without a key answer {', '.join(open_ones)}; vLLM asks for it under "
        f"{', '.join(prefixes)} only ({source})"
    )
    return row("unguarded_paths", by_exposure(exposed), text)


def _developer(at: Address, *, exposed: bool) -> Check:
    found = [path for path in DEVELOPER if _status(at, path) in OPEN]
    if found:
        return row("developer_endpoints", by_exposure(exposed),
                   f"without a key answer {', '.join(found)}")  # fmt: skip
    return row("developer_endpoints", "ok", f"none of {', '.join(DEVELOPER)} answers")


def rate_row(at: Address, *, burst: int, exposed: bool) -> Check:
    """Is anything refused with 429 when ``burst`` requests come at once?"""
    if burst <= 0:
        return row("rate_limit", "unknown", "not tried; --burst 40 sends 40 small requests at once")
    begin = time.perf_counter()
    seen = statuses_of_burst(at.root, requests=burst)
    took_s = time.perf_counter() - begin
    text = f"{burst} requests in {took_s:.2f} s: {seen.get(429, 0)} refused with 429"
    return row("rate_limit", "ok" if seen.get(429) else by_exposure(exposed), text)


def statuses_of_burst(
    url: str, *, requests: int, path: str = GUARDED, api_key: str | None = None
) -> Counter[int]:
    """Send so many GETs one after the other, as fast as they are answered; count the statuses.

    Raises EngineError when one is not answered at all.
    """
    at = address_of(url)
    return Counter(_status(at, path, api_key=api_key) for _ in range(requests))


def _status(at: Address, path: str, *, api_key: str | None = None) -> int:
    try:
        return http_get(at.root, path, timeout_s=TIMEOUT_S, api_key=api_key, https=True)[0]
    except OSError as error:
        raise EngineError(
            f"{at.root}{path} does not answer: {error}. Is the server up, and is it HTTP?"
        ) from error
