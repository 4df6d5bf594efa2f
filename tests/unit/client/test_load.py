"""Open and closed loop against the mock."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from turbo_lab.client.load import run_closed_loop, run_open_loop
from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.metrics.summary import summarize
from turbo_lab.workload.request import Request

QUICK = Script(replies=(Reply(speech=Speech(ttft_s=0.01, gap_s=0.002)),))


def asks(count: int, **more) -> list[Request]:
    return [Request(f"question {i}", max_tokens=3, **more) for i in range(count)]


def in_flight_most(log) -> int:
    """Most requests at once; one whose end the mock has not yet noted has just ended."""
    ends = [float("inf") if e.ended_s is None else e.ended_s for e in log]
    edges = [(e.received_s, 1) for e in log] + [(end, -1) for end in ends]
    level = most = 0
    for _, step in sorted(edges):
        level += step
        most = max(most, level)
    return most


def test_open_loop_keeps_the_schedule_and_the_order():
    times = [0.0, 0.02, 0.02, 0.05, 0.2]
    done = []
    with MockServer(QUICK) as server:
        runs = run_open_loop(
            asks(5), base_url=server.base_url, schedule_s=times, on_finish=done.append
        )
    assert [r.request_id for r in runs] == [f"r{i:05d}" for i in range(5)]
    start = runs[0].scheduled_s
    assert [r.scheduled_s - start for r in runs] == pytest.approx(times)
    assert sorted(r.request_id for r in done) == [r.request_id for r in runs]
    assert all(0 <= r.sent_s - r.scheduled_s < 2 for r in runs)
    assert summarize(runs).verdict == "ok"


def test_open_loop_does_not_wait_for_a_slow_server():
    with MockServer(Script(replies=(Reply(speech=Speech(ttft_s=1.0)),))) as server:
        run_open_loop(asks(8), base_url=server.base_url, schedule_s=[i * 0.01 for i in range(8)])
        assert in_flight_most(server.log) == 8


def test_w10_a_full_client_counts_the_wait_from_the_schedule():
    slow, fast = Speech(ttft_s=1.0), Speech(ttft_s=0.02)
    script = Script(replies=(Reply(speech=slow, match="r00001"), Reply(speech=fast)))
    with MockServer(script) as server:
        runs = run_open_loop(
            asks(4), base_url=server.base_url, schedule_s=[0, 0.05, 0.1, 0.15], max_in_flight=1
        )
    s = summarize(runs)
    assert max(s.ttft_s.values[2:]) < 0.6, "from the send these two look fast"
    assert s.ttft_scheduled_s.values[2] > 0.9, "from the schedule they waited"


@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_closed_loop_holds_its_concurrency(concurrency):
    with MockServer(QUICK) as server:
        runs = run_closed_loop(asks(9), base_url=server.base_url, concurrency=concurrency)
        assert in_flight_most(server.log) <= concurrency
        assert len(server.log) == 9
    assert all(r.scheduled_s is None for r in runs)
    reused = [r.connection_reused for r in runs]
    assert reused.count(False) == min(concurrency, 9), "one set-up per connection"


def test_w17_warm_up_prompts_are_never_measured_ones():
    with MockServer(QUICK) as server:
        runs = run_closed_loop(asks(4), base_url=server.base_url, concurrency=2, warmup=3)
        bodies = [str(e.body["messages"]) for e in server.log]
    assert len(runs) == 4 and len(bodies) == 7
    assert len(set(bodies)) == 7
    assert all("question" not in b for b in bodies[:3])
    assert any(r.connection_reused for r in runs), "the warm-up opened connections"


def test_w17_a_warm_up_with_a_measured_prompt_is_refused():
    with pytest.raises(UsageError, match="prefix cache"):
        run_closed_loop(asks(3), base_url="http://127.0.0.1:1", concurrency=1, warmup=asks(1))


def test_a_failing_warm_up_stops_the_run():
    with (
        MockServer(Script(replies=(Reply(status=500),))) as server,
        pytest.raises(EngineError, match="warm-up"),
    ):
        run_closed_loop(asks(2), base_url=server.base_url, concurrency=1, warmup=1)


def test_failures_come_back_as_timelines_and_are_never_retried():
    script = Script(replies=(Reply(status=503), Reply(speech=Speech(ttft_s=0))))
    with MockServer(script) as server:
        runs = run_closed_loop(asks(6), base_url=server.base_url, concurrency=1)
        assert len(server.log) == 6
    s = summarize(runs)
    assert (s.succeeded, s.failures) == (3, {"HTTP 503": 3})


def test_an_error_of_the_callback_reaches_the_caller():
    def full_disk(_):
        raise OSError(28, "No space left on device")

    with MockServer(QUICK) as server, pytest.raises(OSError, match="No space"):
        run_closed_loop(asks(4), base_url=server.base_url, concurrency=2, on_finish=full_disk)
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda u: run_open_loop(asks(2), base_url=u, schedule_s=[0.0]), "as many times"),
        (lambda u: run_open_loop(asks(2), base_url=u, schedule_s=[1.0, 0.0]), "ascending"),
        (lambda u: run_open_loop(asks(1), base_url=u, schedule_s=[float("nan")]), "finite"),
        (lambda u: run_closed_loop(asks(1), base_url=u, concurrency=0), "at least 1"),
        (lambda u: run_closed_loop([], base_url=u, concurrency=1), "no requests"),
        (lambda u: run_closed_loop(asks(2, request_id="a"), base_url=u, concurrency=1), "unique"),
        (lambda u: run_closed_loop(asks(2), base_url=u, concurrency=1, warmup=-1), "negative"),
    ],
)
def test_wrong_use_is_refused(call, word):
    with pytest.raises(UsageError, match=word):
        call("http://127.0.0.1:1")


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
def test_room_for_open_files_is_made_before_the_measurement():
    code = (
        "from turbo_lab.client.load import raise_open_files\nraise_open_files(500)\n"
        "print(open('/proc/self/status').read())"
    )
    status = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    size = next(line for line in status.splitlines() if line.startswith("FDSize"))
    assert int(size.split()[1]) >= 756


async def test_works_where_a_loop_already_runs():
    with MockServer(QUICK) as server:
        runs = run_closed_loop(asks(3), base_url=server.base_url, concurrency=2)
    assert summarize(runs).verdict == "ok"
