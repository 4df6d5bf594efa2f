"""Slowing a stream to a link's rate without any privilege.

``TokenBucket`` delays whoever takes bytes from it. ``pace_sockets`` asks the kernel to pace the
connections of this process, for libraries that open their own (gloo).
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from turbo_lab.core.errors import UnmeasuredError, UsageError

SO_MAX_PACING_RATE = 47  # Linux; Python's socket module does not name it
RATE_VARIABLE = "TURBO_LAB_LINK_BYTES_S"


class TokenBucket:
    """A rate shared by any number of threads, first come first served.

    After a pause ``burst_bytes`` pass at once. Over any time ``t`` at most
    ``burst_bytes + rate_bytes_s * t`` bytes pass.
    """

    def __init__(
        self,
        rate_bytes_s: float,
        *,
        burst_bytes: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if rate_bytes_s <= 0 or burst_bytes < 1:
            raise UsageError(
                f"rate {rate_bytes_s} bytes/s and burst {burst_bytes} bytes must be above 0"
            )
        self.rate_bytes_s, self.burst_bytes = rate_bytes_s, burst_bytes
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._free_s = clock() - burst_bytes / rate_bytes_s  # when all that was taken is paid

    def take(self, count_bytes: int) -> float:
        """Wait until ``count_bytes`` may pass; returns the seconds waited."""
        with self._lock:
            now_s = self._clock()
            oldest_s = now_s - self.burst_bytes / self.rate_bytes_s
            self._free_s = max(self._free_s, oldest_s) + count_bytes / self.rate_bytes_s
            wait_s = self._free_s - now_s
        if wait_s <= 0:
            return 0.0
        self._sleep(wait_s)
        return wait_s


def pace_sockets(rate_bytes_s: float | None = None) -> int:
    """Let the kernel pace every TCP connection of this process; returns how many there are.

    Call it again after new connections. Each connection is held to the rate alone: a process that
    sends to two others at once gets twice the rate. Default: the rate that paced hosts put into
    the environment; without one nothing is done.

    Raises UnmeasuredError where the kernel has no such option.
    """
    rate = rate_bytes_s or float(os.environ.get(RATE_VARIABLE, 0))
    if not rate:
        return 0
    if sys.platform != "linux":
        raise UnmeasuredError(f"{sys.platform} cannot pace the sockets of a process")
    paced = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if not str(entry.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as one:
                paced += _pace(one, rate)
    return paced


def _pace(one: socket.socket, rate_bytes_s: float) -> bool:
    """Pace one TCP connection; False for any other socket."""
    if one.family not in (socket.AF_INET, socket.AF_INET6) or one.type != socket.SOCK_STREAM:
        return False
    one.getpeername()  # a listening or unconnected socket raises OSError
    try:
        one.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, min(int(rate_bytes_s), 2**31 - 1))
    except OSError as error:
        raise UnmeasuredError(f"this kernel does not pace sockets: {error.strerror}") from error
    return True
