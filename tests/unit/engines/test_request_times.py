"""The engine's own account of its requests, and the split of the client's E2E."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.engines.request_times import (
    HISTOGRAMS,
    PARTS,
    RequestTimes,
    read_times,
    split_e2e,
    times_since,
)
from turbo_lab.metrics.timeline import Timeline


class Fake:
    """A server whose histograms grow by one request per reading."""

    def __init__(self, *, per_reading: int = 1, at_most: int = 99) -> None:
        self.count, self.per_reading, self.at_most = 0, per_reading, at_most

    def metrics(self) -> dict[str, float]:
        self.count = min(self.count + self.per_reading, self.at_most)
        out: dict[str, float] = {"vllm:other": 1.0}
        for weight, histogram in enumerate(HISTOGRAMS.values(), start=1):
            for engine in ("0", "1"):  # two label sets are summed
                out[f'{histogram}_sum{{engine="{engine}"}}'] = 0.1 * weight * self.count / 2
                out[f'{histogram}_count{{engine="{engine}"}}'] = self.count / 2
        return out


def request(e2e_s: float, *, connected_s: float | None = None, ok: bool = True) -> Timeline:
    return Timeline(
        sent_s=10.0, connected_s=10.0 if connected_s is None else connected_s,
        connection_reused=connected_s is None, status_code=200 if ok else 500,
        chunks=((10.0 + e2e_s, 1, "content"),) if ok else (),
        finish_reason="length" if ok else None, saw_done=ok, closed_s=11.0 + e2e_s,
    )  # fmt: skip


def test_differences_belong_to_the_requests_between() -> None:
    server = Fake()
    before = read_times(server)
    found = times_since(server, before, requests=3)
    assert found.requests == 3
    assert found.queue_s == pytest.approx(0.3) and found.server_s == pytest.approx(1.2)


def test_waits_until_the_last_request_is_counted_and_no_longer() -> None:
    before = read_times(server := Fake(at_most=3))
    with pytest.raises(UnmeasuredError, match="counted 2 requests, 5 were sent"):
        times_since(server, before, requests=5, patience_s=0.2)


def test_foreign_requests_are_noticed() -> None:
    before = read_times(server := Fake(per_reading=4))
    with pytest.raises(UnmeasuredError, match="others used the server"):
        times_since(server, before, requests=3)


def test_a_server_without_histograms_is_unmeasured() -> None:
    class Bare:
        def metrics(self) -> dict[str, float]:
            return {}

    with pytest.raises(UnmeasuredError, match="request_queue_time_seconds"):
        read_times(Bare())


def test_parts_add_up_to_the_clients_mean() -> None:
    times = RequestTimes(2, queue_s=0.1, prefill_s=0.2, decode_s=1.0, server_s=1.5)
    runs = [request(0.8, connected_s=10.03), request(1.0)]
    parts = split_e2e(times, runs)
    assert tuple(parts) == PARTS
    assert sum(parts.values()) == pytest.approx(0.9)
    assert parts["connection"] == pytest.approx(0.015)  # paid once, by one of two
    assert parts["API process"] == pytest.approx(0.1)
    assert parts["network and client"] == pytest.approx(0.135)


def test_clocks_that_disagree_show_as_a_negative_part() -> None:
    times = RequestTimes(1, queue_s=0.0, prefill_s=0.5, decode_s=1.0, server_s=1.5)
    assert split_e2e(times, [request(1.0)])["network and client"] < 0


@pytest.mark.parametrize("runs", [[], [request(1.0), request(1.0, ok=False)], [request(1.0)] * 3])
def test_no_split_without_all_requests(runs: list[Timeline]) -> None:
    times = RequestTimes(2, queue_s=0.0, prefill_s=0.1, decode_s=0.2, server_s=0.4)
    with pytest.raises(UnmeasuredError, match="requests sent"):
        split_e2e(times, runs)
