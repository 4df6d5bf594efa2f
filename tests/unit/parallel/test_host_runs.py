"""What the network lesson makes of its runs: gains by rate, where a gain falls through 1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.network.compression import Compression
from turbo_lab.parallel import host_runs
from turbo_lab.parallel.host_runs import Wire

PLAIN, CODED, CODING = 4_000_000, 1_000_000, 0.01


def rows(*rates: float) -> list[dict[str, object]]:
    """Exact times of both on links of these rates (bit/s)."""
    found = []
    for rate in rates:
        times = {"fp32": 8 * PLAIN / rate, "int8": 8 * CODED / rate + CODING}
        found += [
            {"rate_bit_s": rate, "form": form, "seconds": s, "sent_bytes": PLAIN, "error": 0.0}
            for form, s in times.items()
        ]
    return found


def test_gains_stand_at_the_bandwidth_of_the_plain_run() -> None:
    found = host_runs.gains(rows(1e8, 1e9))["int8"]
    deal = Compression(PLAIN, CODED, CODING)
    assert [x for x, _ in found] == pytest.approx([1e8, 1e9])
    assert [y for _, y in found] == pytest.approx([deal.speedup(x / 8) for x, _ in found])
    assert host_runs.gain_at(rows(1e8), "int8", rate_bit_s=1e8) == pytest.approx(found[0][1])
    with pytest.raises(UnmeasuredError, match="not run on a link of 5e"):
        host_runs.gain_at(rows(1e8), "int8", rate_bit_s=5e8)


@given(st.floats(0.2, 0.9), st.floats(1.1, 5))
def test_the_crossing_lies_where_the_formula_has_it(below: float, above: float) -> None:
    even = 8 * Compression(PLAIN, CODED, CODING).break_even_bytes_s
    points = host_runs.gains(rows(even * below, even * above))["int8"]
    assert host_runs.crossing(points) == pytest.approx(even, rel=0.35)


def test_no_crossing_is_no_number() -> None:
    even = 8 * Compression(PLAIN, CODED, CODING).break_even_bytes_s
    for factor, word in ((0.1, "above"), (10.0, "below")):
        points = host_runs.gains(rows(even * factor, even * factor * 1.1))["int8"]
        with pytest.raises(UnmeasuredError, match=f"the gain is {word} 1 at every rate"):
            host_runs.crossing(points)


def test_what_did_not_run_is_no_number() -> None:
    assert host_runs.needed({"s": 1}, "x") == {"s": 1}
    with pytest.raises(UnmeasuredError, match="x did not run here"):
        host_runs.needed(None, "x")


def test_the_slowest_rank_counts_sample_by_sample() -> None:
    ranks = [{"x": [1.0, 4.0]}, {"x": [2.0, 3.0]}]
    assert host_runs.slowest(ranks, "x") == [2.0, 4.0]


def test_paced_hosts_say_what_they_cannot_show() -> None:
    wire = Wire("100mbit", "paced")
    assert wire.facts()["kind"] == "paced" and wire.link.rate_bit_s == 1e8
    grid = {"tensor": 2, "stages": 2}
    for run in (
        lambda: host_runs.wrong_mtu(wire),
        lambda: host_runs.many_to_one(wire, senders=2, bytes_each=1000, queue_s=0.01),
        lambda: host_runs.placement(wire, "stages apart", grid=grid),
    ):
        with pytest.raises(UnmeasuredError, match="paced hosts"):
            run()
    with pytest.raises(UsageError, match="link rate 'fast'"):
        _ = Wire("fast").link
