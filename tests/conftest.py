"""For all tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A busy machine makes any example slow; what must be fast is measured under benchmarks/.
settings.register_profile("turbo-lab", deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


@pytest.fixture(scope="module")
def _kept() -> dict[str, Any]:
    """By name of the function: what it has measured for this module."""
    return {}


@pytest.fixture
def measured_once(
    request: pytest.FixtureRequest, _kept: dict[str, Any]
) -> Callable[[Callable[[], Any]], Any]:
    """``measured_once(make)``: the measurement that all tests of a module judge, made once.

    A test that is tried again has it made again: a module's fixture is not set up anew for a second
    try, so one slow moment of the machine would be judged three times.
    """
    again = getattr(request.node, "execution_count", 1) > 1
    fresh: set[str] = set()

    def get(make: Callable[[], Any]) -> Any:
        name = make.__qualname__
        if name not in _kept or (again and name not in fresh):
            _kept[name] = make()
        fresh.add(name)
        return _kept[name]

    return get
