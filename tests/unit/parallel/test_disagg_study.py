"""How a study's raw events become numbers, without an engine."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.metrics.timeline import Chunk, Timeline
from turbo_lab.parallel.disagg_study import Disturbed, ttft_by_rate, ttft_recomputed


def reply(times: list[float], **facts: object) -> Timeline:
    chunks = tuple(Chunk(t, 1, "content") for t in times)
    made = {"sent_s": 0.0, "connected_s": 0.0, "status_code": 200, "finish_reason": "length",
            "saw_done": True, "closed_s": times[-1], "chunks": chunks}  # fmt: skip
    return Timeline(**{"scheduled_s": 0.0, **made, **facts})


def test_the_worst_gap_is_sought_beside_the_prompt_and_the_usual_one_elsewhere() -> None:
    running = reply([1.0, 1.1, 1.2, 2.2, 2.3, 2.4, 4.0])
    found = Disturbed.of("together", running, reply([2.05, 2.1], sent_s=1.15))
    assert found.beside == (False, True, True, False, False, False)
    assert found.worst_s == pytest.approx(1.0) and found.quiet_s == pytest.approx(0.1)
    assert found.prompt_s == pytest.approx(0.95)
    assert Disturbed.from_dict(found.to_dict()) == found
    alone = Disturbed.of("alone", running, None)
    assert alone.worst_s == pytest.approx(1.6) and alone.prompt_s is None


def test_what_was_not_seen_is_unmeasured() -> None:
    running = reply([1.0, 1.1, 1.2])
    with pytest.raises(UnmeasuredError, match="ended before the prompt"):
        Disturbed.of("together", running, reply([5.0, 6.0], sent_s=4.0))
    with pytest.raises(UnmeasuredError, match="HTTP 502"):
        Disturbed.of("separated", running, reply([1.1, 1.2], status_code=502))
    with pytest.raises(UnmeasuredError, match="came in 2 pieces"):
        Disturbed.of("alone", reply([1.0, 1.1]), None)


def test_rows_are_sorted_by_way_and_rate() -> None:
    rows = [
        {"arm": "recompute", "rate_bytes_s": None, "ttft_s": 3.0},
        {"arm": "transfer", "rate_bytes_s": None, "ttft_s": 0.5},
        {"arm": "transfer", "rate_bytes_s": 1e6, "ttft_s": 2.0},
        {"arm": "transfer", "rate_bytes_s": 1e6, "ttft_s": 2.2},
    ]
    assert ttft_recomputed(rows) == [3.0]
    assert ttft_by_rate(rows) == {None: [0.5], 1e6: [2.0, 2.2]}
