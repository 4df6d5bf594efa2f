"""Requests to a server without the environment's proxy: as the load itself is sent."""

from __future__ import annotations

import functools
import urllib.request
from http.client import HTTPResponse
from typing import cast


def open_direct(request: urllib.request.Request | str, *, timeout_s: float) -> HTTPResponse:
    """The answer, to be used as a context. Raises what ``urlopen`` raises.

    A proxy that stands in the environment is not the server's: what is asked beside a load must
    take the load's way, and a server on loopback is out of a proxy's reach.
    """
    return cast(HTTPResponse, _opener().open(request, timeout=timeout_s))


@functools.cache
def _opener() -> urllib.request.OpenerDirector:
    """Made once, as ``urlopen``'s own is: a sampler asks several times per second."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))
