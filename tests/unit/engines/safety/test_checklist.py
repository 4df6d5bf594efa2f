"""The checklist as a whole: plans, running servers, logs, exit codes."""

from __future__ import annotations

import http.server
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turbo_lab.cli.main import build_app
from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.base import GuardedProcess
from turbo_lab.engines.checklist import CHECKS, checklist, failed
from turbo_lab.engines.safety.live import address_of, statuses_of_burst
from turbo_lab.engines.safety.machine import holds_secret, listeners, log_rows

KEY = "a-key-of-this-test-0123456789"


@contextmanager
def serving(
    answers: dict[str, int], *, key: str | None = None, host: str = "127.0.0.1", allowed: int = 999
) -> Iterator[tuple[str, list[str]]]:
    """A little server: statuses by path (else 404), a key for /v1, a limit of requests."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path)
            status = answers.get(self.path, 404)
            if key and self.path.startswith("/v1"):
                status = status if self.headers["Authorization"] == f"Bearer {key}" else 401
            self.send_response(429 if len(seen) > allowed else status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer((host, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def statuses(rows) -> dict[str, str]:
    return {row.id: row.status for row in rows}


def run(*arguments: str, env: dict[str, str] | None = None):
    return CliRunner().invoke(build_app("serve"), ["serve", *arguments], env=env)


def test_every_row_is_there_once_in_order_whatever_is_given(monkeypatch, tmp_path):
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    plan = VllmArgs.make(model=str(tmp_path))
    with serving({"/v1/models": 200}) as (url, _):
        for rows in (checklist(plan), checklist(url=url), checklist(plan, url=url)):
            assert [row.id for row in rows] == list(CHECKS)
            assert all(row.why and row.evidence and row.fix for row in rows)
            assert all(set(row.to_dict()) == {"id", "status", "why", "evidence", "fix"}
                       for row in rows)  # fmt: skip


def test_what_is_neither_plan_nor_server_is_wrong_use():
    for options in ({}, {"args": VllmArgs.make(model="m"), "burst": 3},
                    {"url": "http://127.0.0.1:1", "burst": -1}):  # fmt: skip
        with pytest.raises(UsageError):
            checklist(**options)
    with pytest.raises(EngineError, match="does not answer"):
        checklist(url="http://127.0.0.1:9")


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://h", "http://", "http://h:99999",
                                 "http://h/metrics", "http://u:p@h"])  # fmt: skip
def test_an_impossible_address_is_wrong_use(url):
    with pytest.raises(UsageError, match="--url"):
        address_of(url)


def test_an_open_server_on_loopback_is_warned_about():
    open_paths = {"/v1/models": 200, "/metrics": 200, "/tokenize": 405, "/collective_rpc": 405}
    with serving(open_paths) as (url, _):
        rows = checklist(url=url)
    found = statuses(rows)
    assert not failed(rows)
    assert [found[name] for name in ("api_key", "unguarded_paths", "developer_endpoints")] == (
        ["warn"] * 3
    )
    told = next(row.evidence for row in rows if row.id == "unguarded_paths")
    assert "/metrics" in told and "/tokenize" in told and "/invocations" not in told


def test_a_guarded_server_is_not():
    with serving({"/v1/models": 200}, key=KEY) as (url, seen):
        found = statuses(checklist(url=url))
    assert found["api_key"] == found["unguarded_paths"] == found["developer_endpoints"] == "ok"
    assert all(path.startswith("/") for path in seen) and "/v1/completions" not in seen


def test_a_server_on_all_addresses_fails_where_its_socket_is_seen():
    with serving({"/v1/models": 200, "/metrics": 200}, host="0.0.0.0") as (url, _):
        if not listeners(address_of(url).port):
            pytest.skip("this system does not show its sockets")
        rows = checklist(url=url)
    found = statuses(rows)
    assert found["loopback_only"] == found["api_key"] == found["encrypted"] == "fail"
    assert failed(rows)


def test_sockets_are_seen_with_their_address():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        assert listeners(port) == []
        one.listen()
        if not listeners(port):
            pytest.skip("this system does not show its sockets")
        assert [row.address for row in listeners(port)] == ["127.0.0.1"]


def test_a_rate_limit_shows_in_a_burst_and_its_absence_too():
    with serving({"/v1/models": 200}) as (url, _):
        assert statuses(checklist(url=url))["rate_limit"] == "unknown"
        assert statuses(checklist(url=url, burst=10))["rate_limit"] == "warn"
    with serving({"/v1/models": 200}, allowed=4) as (url, seen):
        assert statuses_of_burst(url, requests=10) == {200: 4, 429: 6}
        assert len(seen) == 10


def test_what_a_server_answers_goes_before_what_its_arguments_promise(monkeypatch, tmp_path):
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    promised = VllmArgs.make(model=str(tmp_path), env=(("VLLM_API_KEY", KEY),))
    assert statuses(checklist(promised))["api_key"] == "ok"
    with serving({"/v1/models": 200}) as (url, _):
        assert statuses(checklist(promised, url=url))["api_key"] == "warn"


LOGGED = "INFO 05-08 10:00:01 [logger.py:43] Received request c-1: "


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        ("INFO 11-30 [api_server.py:9] args: Namespace(api_key='sk-abcdefghijklmnopqrst')", False),
        ("$ vllm serve m --api-key abcdef", False),
        ("INFO: Authorization: Bearer abcdefghijkl", False),
        ("INFO: loading https://me:pw@host/model", False),
        (f"{LOGGED}prompt: 'private words', params: SamplingParams(n=1)", False),
        ("DEBUG [request_logger.py:60] Request c-1 details: prompt: 'private', "
         "prompt_token_ids: None", False),
        ("INFO [request_logger.py:99] Generated response c-1: output: 'private'", False),
        ("DEBUG [request_logger.py:70] Request c-1 JSON body: {\"prompt\": 1}", False),
        (f"{LOGGED}params: SamplingParams(n=1, temperature=0.0), lora_request: None.", True),
        ("INFO 11-30 [api_server.py:9] args: Namespace(api_key=None, hf_token=None)", True),
        ("INFO [utils.py:286] non-default args: {'api_key': '***', 'model': 'm'}", True),
        ("$ vllm serve m --api-key [redacted]", True),
        ("INFO: Avg prompt throughput: 12.0 tokens/s, max_tokens=16, eos_token=2", True),
        ("INFO:     10.0.0.4:1 - \"POST /v1/completions HTTP/1.1\" 200 OK", True),
    ],
)  # fmt: skip
def test_keys_and_prompts_in_a_log_are_found_and_nothing_else_is(line, clean, tmp_path):
    log = tmp_path / "server.log"
    log.write_text(f"INFO start\n{line}\nINFO end\n")
    found = {row.id: row for row in log_rows(log)}
    assert (found["log_clean"].status == "ok") is clean, found["log_clean"].evidence
    if not clean:
        assert found["log_clean"].evidence.startswith("line 2")
        assert "private" not in found["log_clean"].evidence


def test_an_ordinary_line_holds_no_secret():
    assert not holds_secret("the key of the cache is 12, token throughput 3")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs rights as on Unix")
def test_who_may_read_the_log(tmp_path):
    log = tmp_path / "server.log"
    log.write_text("x\n")
    log.chmod(0o600)
    assert statuses(log_rows(log))["log_private"] == "ok"
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        if not folder.stat().st_mode & 0o001:
            log.chmod(0o644)
            assert statuses(log_rows(log))["log_private"] == "ok"
            break
    with pytest.raises(UsageError, match="--log"):
        log_rows(tmp_path / "none")


def test_exit_codes_and_json():
    good = run("--checklist", "--json", env={"VLLM_API_KEY": KEY})
    assert good.exit_code == 0, good.output
    read = json.loads(good.stdout)
    assert [row["id"] for row in read["checks"]] == list(CHECKS)
    assert sum(read["counts"].values()) == len(CHECKS) and "fail" not in read["counts"]
    assert KEY not in good.stdout
    bad = run("--checklist", "--flag=--host=0.0.0.0", f"--flag=--api-key={KEY}")
    assert bad.exit_code == 1 and "loopback_only" in bad.stdout and KEY not in bad.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--burst", "3"), "--checklist"), (("--url", "http://127.0.0.1:1"), "--checklist"),
     (("--checklist", "--proxy", "none.conf"), "--proxy"),
     (("--checklist", "--log", "none.log"), "--log"),
     (("--checklist", "./none"), "does not exist"),
     (("--checklist", "--env", "X"), "NAME=VALUE"),
     (("--nginx", "8080"), "--port"), (("--nginx", "8080", "--port", "8080"), "different"),
     (("--nginx", "0", "--port", "8080"), "port is 0")],
)  # fmt: skip
def test_wrong_use_is_told(arguments, said):
    error = run(*arguments).exception
    assert getattr(error, "exit_code", None) == 2 and said in str(error)


def test_a_server_can_be_asked_with_the_key_of_its_arguments(monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "inherited")
    assert VllmArgs.make(model="m").api_key() == "inherited"
    assert VllmArgs.make(model="m", env=(("VLLM_API_KEY", "own"),)).api_key() == "own"
    both = VllmArgs.make(model="m", env=(("VLLM_API_KEY", "e"),), extra=(("--api-key", "flag"),))
    assert both.api_key() == "flag"
    assert VllmArgs.make(model="m", env=(("VLLM_API_KEY", ""),)).api_key() is None


@pytest.mark.skipif(sys.platform != "linux", reason="process groups as on Linux")
def test_the_log_of_a_server_is_private_and_holds_no_key(tmp_path: Path):
    command = [sys.executable, "-c", "pass", "--api-key", KEY, f"--api-key={KEY}"]
    process = GuardedProcess(command=command, folder=tmp_path / "s", env={})
    process.start()
    try:
        found = statuses(log_rows(process.log))
        assert process.log.stat().st_mode & 0o777 == 0o600
        assert found == {"log_private": "ok", "log_clean": "ok"}
        assert KEY not in process.log.read_text()
    finally:
        process.stop()
