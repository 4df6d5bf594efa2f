"""The lesson's links, tables and words; the measuring itself is in tests/dist."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.network.cost import latency_bandwidth
from turbo_lab.turbo import lesson
from turbo_lab.turbo.packet import frame_bytes


def test_a_frame_takes_five_times_what_the_switch_needs() -> None:
    link = lesson.fitting_link(25e-6, hosts=8, dim=64)
    frame_s = frame_bytes(64) / link.rate_bytes_s
    assert frame_s >= lesson.LINK_OVER_CPU * 2 * 8 * 25e-6
    assert link.whole_packets and link.queue_bytes > 63 * frame_bytes(64)


def test_the_cost_of_a_datagram_is_measured() -> None:
    assert 0 < lesson.datagram_cost_s(16, datagrams=200) < 0.05


def row(strategy: str, hosts: int, step_s: float) -> dict:
    return {"hosts": hosts, "strategy": strategy, "sent_bytes": 1, "received_bytes": 2,
            "step_s": step_s, "link_s": 1.0, "layers": 10, "layer_bytes": 1000}  # fmt: skip


def test_the_table_holds_medians_beside_both_predictions() -> None:
    rows = [row("ring", 4, 1.0), row("in-network", 4, 0.5), row("ring", 4, 2.0)]
    ring, switch = lesson.step_table(rows, latency_bandwidth(0.05, 1e4))
    assert ring["step_s"] == 1.5 and ring["fitted_s"] == pytest.approx(1.5)
    assert ring["error"] == pytest.approx(0.0) and ring["noise"] == pytest.approx(2 / 3)
    assert switch["step_s"] == 0.5
    assert lesson.ratio([ring, switch], "ring", 4) == 3.0


def test_jobs_cover_every_strategy_and_number_of_hosts() -> None:
    jobs = lesson.strategy_jobs("quick", heads=9, dim=64)
    assert len(jobs) == 12 and {j.hosts for j in jobs} == {2, 4, 8}
    assert {j.layers for j in jobs} == {30}
    assert all(j.loss == 0.05 for j in lesson.fault_jobs(heads=9, dim=64))
    with pytest.raises(UsageError, match="quick"):
        lesson.plan("quik")
