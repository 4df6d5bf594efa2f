"""The mock itself: its script, its log, its process, and the client's error against it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

import pytest

from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.engines.base import http_get
from turbo_lab.engines.mock_process import MockProcess
from turbo_lab.engines.mock_script import Reply, Script, Speech, Step, event, payload, split
from turbo_lab.engines.mock_server import MockServer, load_script

from ...waiting import wait_until

EARLY_S, LATE_S = 1e-3, 1.0  # rounding, and how late a busy machine may wake the mock up
BODY = json.dumps(
    {"messages": [{"role": "user", "content": "two words"}], "max_tokens": 3}
).encode()


def post(port: int, body: bytes = BODY, *, request_id: str = "x") -> bytes:
    """One raw POST; the bytes up to the end of the answer or the close."""
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-request-id: {request_id}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(head.encode() + body)
        got = b""
        while not got.endswith(b"0\r\n\r\n"):
            if not (block := connection.recv(65536)):
                break
            got += block
        return got


def port_of(server: MockServer | MockProcess) -> int:
    return int(server.base_url.rpartition(":")[2])


def test_speech_follows_the_request_and_the_log_has_the_times():
    speech = Speech(ttft_s=0.05, gap_s=0.02)
    with MockServer(Script(replies=(Reply(speech=speech),))) as server:
        answer = post(port_of(server))
        entry = server.log[0]
    assert answer.count(b"data: ") == 5  # role, three chunks, [DONE]; no usage was asked for
    assert entry.request_id == "x" and entry.end == "close"
    sends = entry.content_s()
    assert len(sends) == 3
    for number, sent in enumerate(sends):
        late_s = sent - entry.received_s - (0.05 + 0.02 * number)
        assert -EARLY_S < late_s < LATE_S
    assert sends[2] <= entry.ended_s


@pytest.mark.alone
def test_times_do_not_drift_over_many_chunks():
    """A hundred late wake-ups must not add up. The best of some runs: other work only adds."""
    body = json.dumps({"prompt": "x", "max_tokens": 100}).encode()
    with MockServer(Script(replies=(Reply(speech=Speech(ttft_s=0, gap_s=0.002)),))) as server:
        for _ in range(8):
            post(port_of(server), body)
        runs = [(entry.received_s, entry.content_s()) for entry in server.log]
    assert {len(sends) for _, sends in runs} == {100}
    lasted = [sends[-1] - received for received, sends in runs]
    assert -EARLY_S < min(lasted) - 99 * 0.002 < 0.03


def test_prefill_grows_with_the_prompt():
    script = Script(replies=(Reply(speech=Speech(ttft_s=0, prefill_s_per_word=0.02)),))
    with MockServer(script) as server:
        post(port_of(server))
        entry = server.log[0]
    assert -EARLY_S < entry.content_s()[0] - entry.received_s - 0.04 < LATE_S


def test_replies_come_in_turn_and_by_match():
    script = Script(
        replies=(Reply(status=201), Reply(status=202), Reply(status=503, match="special"))
    )
    with MockServer(script) as server:
        port = port_of(server)
        got = [post(port).split()[1] for _ in range(3)]
        assert got == [b"201", b"202", b"201"]
        assert post(port, request_id="special-1").split()[1] == b"503"


def test_slots_make_requests_wait():
    script = Script(replies=(Reply(steps=(event("[DONE]", after_s=0.1),)),), slots=1)
    import threading

    with MockServer(script) as server:
        port = port_of(server)
        threads = [threading.Thread(target=post, args=(port,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        starts = sorted(e.started_s for e in server.log)
    assert starts[2] - starts[0] >= 0.19


def test_truncate_cuts_the_body():
    reply = Reply(steps=(event(payload("a")),), end="truncate")
    with MockServer(Script(replies=(reply,))) as server:
        answer = post(port_of(server))
    assert b"data: " in answer and not answer.endswith(b"0\r\n\r\n")


def test_other_paths_and_live_control():
    with MockServer(Script(model="m", extra_metrics={"queue": 3.0})) as server:
        url = server.base_url
        assert http_get(url, "/health")[0] == 200
        assert json.loads(http_get(url, "/v1/models")[1])["data"][0]["id"] == "m"
        assert b"queue 3.0" in http_get(url, "/metrics")[1]
        assert http_get(url, "/nothing")[0] == 404
        post(port_of(server))
        assert len(json.loads(http_get(url, "/mock/log")[1])) == 1
        assert server.metrics()["mock:requests_total"] == 1
        assert server.effective_config()["model"] == "m"


def test_a_client_that_leaves_is_noted():
    with MockServer(Script(replies=(Reply(head_after_s=None),))) as server:
        with socket.create_connection(("127.0.0.1", port_of(server))) as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")
            assert wait_until(lambda: server.log)
        assert wait_until(lambda: server.log[0].end)
        assert server.log[0].end == "client left"


def test_stop_closes_hanging_connections_and_can_be_repeated():
    server = MockServer(Script(replies=(Reply(end="hang"),)))
    server.start()
    connection = socket.create_connection(("127.0.0.1", port_of(server)))
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")
    assert wait_until(lambda: server.log)
    started = time.monotonic()
    server.stop()
    server.stop()
    assert time.monotonic() - started < 30
    connection.close()
    with pytest.raises(EngineError, match="not running"):
        _ = server.base_url


def test_a_taken_port_is_refused():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(UsageError, match="taken"):
            MockServer(port=other.getsockname()[1]).start()


def test_script_round_trip():
    script = Script(
        replies=(
            Reply(speech=Speech(ttft_s=0.5)),
            Reply(
                steps=(*split(event(payload("é")), at=[70]), Step(0.1, b"\xff\x00")),
                end="hang",
                status=418,
                head_after_s=None,
                match="m",
            ),
        ),
        slots=2,
    )
    assert Script.from_dict(json.loads(json.dumps(script.to_dict()))) == script


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "cannot read"),
        ("{}", "no replies"),
        ('{"replies": [{"stauts": 200}]}', "status"),
        ('{"replies": [{"steps": [{"aftr_s": 1}]}]}', "after_s"),
        ('{"replies": [{"end": "explode"}]}', "truncate"),
        ('{"replies": [{"speech": {"tttf_s": 1}}]}', "ttft_s"),
    ],
)
def test_a_wrong_script_names_its_fault(tmp_path, text, word):
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=word):
        load_script(path)


def test_process_with_a_wrong_script_exits_2(tmp_path):
    command = [sys.executable, "-m", "turbo_lab.engines.mock_server", "--script", "/nowhere.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "/nowhere.json" in done.stderr and "Traceback" not in done.stderr


def test_process_answers_and_ends():
    script = Script(replies=(Reply(speech=Speech(ttft_s=0, gap_s=0)),), model="p")
    with MockProcess(script) as server:
        assert json.loads(http_get(server.base_url, "/v1/models")[1])["data"][0]["id"] == "p"
        post(port_of(server), request_id="a")
        entry = server.log()["a"]
        assert len(entry["sends"]) == 5 and entry["end"] == "close"
        assert server.metrics()["mock:requests_total"] == 1
        url = server.base_url
    server.stop()
    with pytest.raises(OSError, match="refused"):
        http_get(url, "/health")


def test_process_ends_with_its_parent():
    code = (
        "import os; from turbo_lab.engines.mock_process import MockProcess; "
        "s = MockProcess(); s.start(); print(s.base_url, flush=True); os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    url = done.stdout.strip()
    assert url.startswith("http://127.0.0.1:")

    def gone() -> bool:
        try:
            http_get(url, "/health", timeout_s=1)
        except OSError:
            return True
        return False

    assert wait_until(gone), "the mock outlived its parent"
