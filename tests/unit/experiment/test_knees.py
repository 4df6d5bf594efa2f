"""Knees of known curves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.experiment.knees import LoadPoint, latency_knee, memory_knee, power_knee

USERS = (1, 2, 4, 8, 16, 32)


def closed(shared: float, each: float) -> list[LoadPoint]:
    return [LoadPoint(u, u / (shared + each * u), shared + each * u) for u in USERS]


@given(st.floats(0.1, 10), st.floats(0.01, 1))
def test_power_is_greatest_next_to_shared_over_each(shared: float, each: float) -> None:
    found = power_knee(closed(shared, each))
    assert found is not None
    place = USERS.index(int(found.load))
    below = USERS[max(0, place - 1)] if place else 0
    above = USERS[place + 1] if place + 1 < len(USERS) else float("inf")
    assert below <= shared / each <= above


def test_a_straight_line_has_no_bend_but_a_power_knee() -> None:
    points = closed(4.0, 1.0)
    assert latency_knee(points) is None
    assert power_knee(points).load == 4  # type: ignore[union-attr]


def test_too_few_points_have_no_knee() -> None:
    unknown = [LoadPoint(u, None, None) for u in USERS]
    assert power_knee(closed(4.0, 1.0)[:2]) is None and power_knee(unknown) is None


def test_memory_knee_is_the_first_load_with_preemptions_or_a_full_cache() -> None:
    points = [LoadPoint(u, 1.0, 1.0, kv_usage_max=u / 32, preemptions=0) for u in USERS]
    assert memory_knee(points).load == 32  # type: ignore[union-attr]
    points[3] = LoadPoint(8, 1.0, 1.0, preemptions=2)
    assert memory_knee(points).load == 8  # type: ignore[union-attr]
    assert memory_knee(points[:3]) is None
