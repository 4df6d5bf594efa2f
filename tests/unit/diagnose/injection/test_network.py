"""Broken connections against a scripted server: proxy, slow reader, and what a watch keeps."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from turbo_lab.client.stream import API_KEY_VARIABLE, Target, send_one
from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.diagnose.client_rules import client_findings
from turbo_lab.diagnose.injection.fault import Evidence
from turbo_lab.diagnose.injection.patient import Patient, client_key
from turbo_lab.diagnose.injection.proxy import FaultyProxy
from turbo_lab.diagnose.injection.slow_reader import read_slowly
from turbo_lab.engines.mock_script import Script
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.workload.request import Request

CAUSE = {"refuse": "peer_unreachable", "stall": "request_timeouts", "reset": "connection_broken"}


@pytest.fixture
def mock() -> Iterator[MockServer]:
    with MockServer(Script()) as server:
        yield server


def ask(base_url: str, timeout_s: float = 30.0):
    return send_one(Request("hello", max_tokens=64), base_url=base_url, timeout_s=timeout_s)


@pytest.mark.parametrize("mode", [*CAUSE])
def test_the_proxy_breaks_what_it_says_and_the_client_knows_it(mock: MockServer, mode) -> None:
    with FaultyProxy(mock.base_url, mode=mode, after_bytes=400) as proxy:
        run = ask(proxy.base_url, timeout_s=0.5 if mode == "stall" else 30.0)
        (finding,) = client_findings([run])
        assert finding.cause == CAUSE[mode]
        assert proxy.connections == (0 if mode == "refuse" else 1)
    with FaultyProxy(mock.base_url) as proxy:
        assert client_findings([ask(proxy.base_url)]) == []
    with pytest.raises(EngineError, match="not running"):
        _ = proxy.base_url


def test_after_a_stall_the_server_sees_that_its_reader_is_gone(mock: MockServer) -> None:
    mock_entries = lambda: [entry.end for entry in mock.log]  # noqa: E731
    with FaultyProxy(mock.base_url, mode="stall", after_bytes=10) as proxy:
        ask(proxy.base_url, timeout_s=0.3)
    assert len(mock_entries()) == 1


def test_the_proxy_is_for_this_machine_alone() -> None:
    for target in ("http://10.0.0.1:80", "http://127.0.0.1"):
        with pytest.raises(UsageError, match=r"127\.0\.0\.1"):
            FaultyProxy(target)
    with pytest.raises(UsageError, match="stall"):
        FaultyProxy("http://127.0.0.1:80", mode="stal")  # type: ignore[arg-type]


def test_its_port_is_free_again_after_an_error(mock: MockServer) -> None:
    with pytest.raises(RuntimeError), FaultyProxy(mock.base_url) as proxy:
        port = int(proxy.base_url.rpartition(":")[2])
        raise RuntimeError
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


@pytest.mark.parametrize("pauses", [0.0, 5.0])
def test_a_slow_reader_takes_long_over_what_the_server_had_done(mock: MockServer, pauses) -> None:
    request = Request("hello", max_tokens=16)
    ended = lambda: bool(mock.log) and mock.log[-1].ended_s is not None  # noqa: E731
    run = read_slowly(request, target=Target(mock.base_url), finished=ended, pauses=pauses)
    entry = mock.log[-1]
    server_s, client_s = entry.ended_s - entry.received_s, run.closed_s - run.sent_s
    assert run.validate().error is None and run.finish_reason == "length"
    assert len(run.visible()) == 16
    assert (client_s > 5 * server_s) == bool(pauses)


def test_the_key_of_before_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, "mine")
    with pytest.raises(RuntimeError), client_key("other"):
        assert os.environ[API_KEY_VARIABLE] == "other"
        raise RuntimeError
    assert os.environ[API_KEY_VARIABLE] == "mine"
    with client_key(None):
        assert API_KEY_VARIABLE not in os.environ


class Server:
    """A mock with a log, as a patient needs it."""

    model_name = "mock"

    def __init__(self, mock: MockServer, log: Path) -> None:
        self.base_url, self.log = mock.base_url, log

    def alive(self) -> bool:
        return True


def test_a_watch_keeps_new_lines_and_new_counts_alone(mock: MockServer, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    refused = 'INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 401 Unauthorized\n'
    log.write_text(refused * 9)
    patient = Patient(Server(mock, log), seats=2)
    counts = {"vllm:request_success_total": 7.0, "vllm:num_requests_running": 0.0,
              "vllm:num_requests_waiting": 0.0, "vllm:num_preemptions_total": 40.0}  # fmt: skip
    mock._app.script = Script(extra_metrics=counts)
    watch = patient.watch()
    with log.open("a") as stream:
        stream.write("INFO x Avg prompt throughput: 1.0 tokens/s, Waiting: 80 reqs\nnew\n")
    mock._app.script = Script(extra_metrics=counts | {"vllm:request_success_total": 9.0})
    evidence = watch.evidence()
    assert evidence.log == b"new\n" and evidence.findings("log") == []
    assert evidence.page.total("finished") == 2 and evidence.page.total("preemptions") == 0
    assert evidence.findings("metrics") == [] and Evidence().findings("metrics") == []


def test_no_two_requests_begin_alike(mock: MockServer, tmp_path: Path) -> None:
    patient = Patient(Server(mock, tmp_path / "x"))
    asked = patient.requests(5, prompt_tokens=7) + patient.requests(5, prompt_tokens=7)
    assert {len(request.prompt) for request in asked} == {7}
    assert len({tuple(request.prompt) for request in asked}) == 10


def test_a_slow_machine_gets_limits_of_its_own(tmp_path: Path, mock: MockServer) -> None:
    from turbo_lab.diagnose.page_rules import DEFAULT_LIMITS, page_findings
    from turbo_lab.diagnose.pages import parse_page

    name = "vllm:request_time_per_output_token_seconds"
    page = lambda s: parse_page(f"{name}_sum {10 * s}\n{name}_count 10\n", source="p")  # noqa: E731
    patient = Patient(Server(mock, tmp_path / "x"))
    patient.learn_limits(page(0.15))
    assert page_findings(page(0.3)) and not page_findings(page(0.3), limits=patient.limits)
    assert [f.cause for f in page_findings(page(1.6), limits=patient.limits)] == ["tpot_bound"]
    patient.limits = DEFAULT_LIMITS
    patient.learn_limits(page(0.001))
    assert patient.limits == DEFAULT_LIMITS
