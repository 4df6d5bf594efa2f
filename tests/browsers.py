"""The system's Chromium for tests, and what they say where it is missing."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def absent(reason: str) -> NoReturn:
    """Where CI requires the browser tests nothing may be missing; elsewhere it is a skip."""
    if os.environ.get("TURBO_LAB_REQUIRE_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)


def browser_path() -> str:
    """The system's Chromium; a skip with its reason, or a failure where CI requires it."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    return found or absent("no chromium on this machine (Debian: apt-get install chromium)")
