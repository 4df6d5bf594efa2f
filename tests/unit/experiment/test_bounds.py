"""Hostile servers and large crowds: bounded, clear, no hang."""

from __future__ import annotations

import resource
import time

import pytest

from turbo_lab.client.load import run_closed_loop
from turbo_lab.client.stream import Target
from turbo_lab.engines.mock_process import MockProcess
from turbo_lab.engines.mock_script import Reply, Script, Speech, Step
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.experiment import ask
from turbo_lab.experiment.bench import run_bench
from turbo_lab.metrics.summary import summarize
from turbo_lab.workload.request import Request

from .conftest import quick_options, quick_plan

GOOD = Reply(speech=Speech(ttft_s=0.01, gap_s=0.0), match="Probe")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(head_after_s=None), "timed out"),
        (Reply(end="hang"), "timed out"),
        (Reply(steps=(Step(0.0, b"\x00\xff\xfe garbage\n\n" * 50),)), "no event"),
        (Reply(steps=(Step(0.0, b"data: {broken\n\n"),)), "error inside the stream"),
        (Reply(steps=(Step(0.0, b"data: []\n\n"),)), "error inside the stream"),
        (Reply(status=204), "HTTP 204"),
    ],
)
def test_a_server_that_turns_bad_after_the_first_request(tmp_path, reply, reason):
    start = time.monotonic()
    with MockServer(Script(replies=(GOOD, reply))) as server:
        run = run_bench(
            server.base_url, out=tmp_path, options=quick_options(),
            plan=quick_plan(requests=8, concurrency=8, timeout_s=1.0, warmup=0),
        )  # fmt: skip
    assert time.monotonic() - start < 60
    assert not run.evidence.good
    gate = next(g for g in run.record.gates if g.name == "failures")
    assert gate.passed is False and reason in gate.detail


def test_a_server_that_never_answers_costs_a_bounded_time(tmp_path):
    """2,000 requests at 1 s each would be half an hour: the run gives up after 16 in a row."""
    with MockServer(Script(replies=(GOOD, Reply(head_after_s=None)))) as server:
        start = time.monotonic()
        run = run_bench(
            server.base_url, out=tmp_path, options=quick_options(),
            plan=quick_plan(requests=2000, concurrency=4, timeout_s=1.0, warmup=0),
        )  # fmt: skip
        assert time.monotonic() - start < 120
    assert "16 requests in a row got no answer" in str(run.problem)
    assert not run.record.complete and len(run.evidence.timelines) < 50


def test_a_page_that_trickles_meets_the_deadline():
    drip = tuple(Step(0.1, b"x" * 10) for _ in range(300))
    with MockServer(Script(replies=(Reply(steps=drip),))) as server:
        start = time.monotonic()
        assert ask.get(Target(server.base_url), "/v1/nothing", timeout_s=1.0) is None
        assert ask.get_json(Target(server.base_url), "/metrics") is None
        assert ask.get(Target("http://127.0.0.1:9"), "/") is None
        assert time.monotonic() - start < 20, "the whole page takes 30 s"
        assert ask.reachable(Target(server.base_url))
    assert not ask.reachable(Target("http://127.0.0.1:9"), timeout_s=0.5)


@pytest.mark.alone
@pytest.mark.slow
def test_ten_thousand_connections_at_once():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 12_000:
        pytest.skip(f"this machine allows {hard} open files")
    count = 10_000
    patient = Reply(speech=Speech(ttft_s=20.0, gap_s=0.0, tokens=1))
    requests = [Request(f"q{i}", model="mock", max_tokens=1) for i in range(count)]
    with MockProcess(Script(replies=(patient,))) as mock:
        runs = run_closed_loop(requests, base_url=mock.base_url, concurrency=count, timeout_s=150.0)
    found = summarize(runs)
    assert found.succeeded == count, found.failures
    overlap = max(t.sent_s for t in runs) < min(t.closed_s for t in runs)
    print("all open at once" if overlap else "not all open at once")
