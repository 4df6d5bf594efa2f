"""For the tests on real engines."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

# Here every case starts a server of its own, so the cases may go to either worker.
ONE_START_A_CASE = (
    "test_capacity_live.py", "test_quantized_checkpoint.py", "test_serve_command.py",
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before the plugin that reads the marker
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Tests of one module share its servers, so one worker runs them all (--dist loadgroup)."""
    for item in items:
        if item.path.name not in ONE_START_A_CASE:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
