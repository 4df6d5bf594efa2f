"""Hosts of several kinds for tests that need real links."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from turbo_lab.core.errors import TurboLabError
from turbo_lab.network.hosts import Hosts
from turbo_lab.network.links import open_hosts


@pytest.fixture(scope="session")
def namespaces_allowed() -> Iterator[None]:
    """Skip with the reason where this machine allows no network namespaces."""
    try:
        open_hosts(2, kind="namespaces").close()
    except TurboLabError as error:
        pytest.skip(str(error))
    yield


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Two namespaces on a 1 Gbit link; skipped with the reason where none are allowed."""
    try:
        opened = open_hosts(2, link="1gbit", kind="namespaces")
    except TurboLabError as error:
        pytest.skip(str(error))
    with opened:
        yield opened
