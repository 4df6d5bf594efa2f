"""For all tests."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings

# A busy machine makes any example slow; what must be fast is measured under benchmarks/.
settings.register_profile("turbo-lab", deadline=None)
settings.load_profile("turbo-lab")

# Tests that measure real engines, processes or browsers. Two cores that others share lose half of
# their speed for seconds at a time, and one such moment spoils one measurement. A claim that is
# wrong fails three times; the summary (-rR) names every test that needed more than one.
MEASURING = ("engine", "live", "browser", "alone", "net")
REPEATS, PAUSE_S = 2, 3


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Measure again, twice at most, what failed; all other tests have one try."""
    for item in items:
        if "dist" in item.path.parts or any(item.get_closest_marker(n) for n in MEASURING):
            item.add_marker(pytest.mark.flaky(reruns=REPEATS, reruns_delay=PAUSE_S))
