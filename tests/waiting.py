"""Waiting in tests for what comes by itself."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S = 0.02


def wait_until(condition: Callable[[], object], timeout_s: float = 60.0) -> bool:
    """Poll; True as soon as the condition holds, False after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return bool(met)
