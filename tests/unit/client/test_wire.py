"""Connections: what is reused, what is not, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
import subprocess

import pytest

from turbo_lab.client import wire
from turbo_lab.client.http_reply import HttpReply
from turbo_lab.client.stream import Target, open_channel, send_one_async, stream_one
from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.engines.mock_app import MockApp
from turbo_lab.engines.mock_http import HttpConnection
from turbo_lab.engines.mock_script import Script
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.workload.request import Request

ASK = Request("hello", max_tokens=2)
EVENT = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}\n\n'
DONE = EVENT + b"data: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
COUNTED = HEAD + b"Content-Length: %d\r\n\r\n" % len(DONE) + DONE


@contextlib.asynccontextmanager
async def raw_server(*answers: bytes):
    """Sends one of these byte strings per request; the connection stays open unless empty."""
    turn, writers = iter(answers), []

    async def serve(reader, writer):
        writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                if answer := next(turn, b""):
                    writer.write(answer)
                    await writer.drain()
                if not answer or b"Length" not in answer:
                    writer.close()
                    return

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.close()


async def ask_twice(*answers: bytes):
    async with raw_server(*answers) as url, open_channel(Target(url, timeout_s=5)) as channel:
        return [await stream_one(ASK, channel=channel) for _ in range(2)]


async def test_a_connection_is_used_again():
    first, second = await ask_twice(COUNTED, COUNTED)
    assert (first.error, second.error) == (None, None)
    assert (first.connection_reused, second.connection_reused) == (False, True)


async def test_a_stream_that_ends_with_the_connection_is_whole():
    first, second = await ask_twice(HEAD + b"\r\n" + DONE, COUNTED)
    assert (first.text, first.saw_done, first.error) == ("a", True, None)
    assert second.connection_reused is False and second.error is None


async def test_stray_bytes_never_become_the_next_reply():
    first, second = await ask_twice(COUNTED + b"HTTP/1.1 500 Late\r\n\r\n", COUNTED)
    assert (first.error, second.error, second.connection_reused) == (None, None, False)


async def test_a_pooled_connection_that_grew_old_is_not_used(monkeypatch):
    monkeypatch.setattr(wire, "KEEPALIVE_S", 0.0)
    _, second = await ask_twice(COUNTED, COUNTED)
    assert second.connection_reused is False and second.error is None


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        (b"", None, "the connection broke: the server closed without an answer"),
        (HEAD + b"Content-Len", None, "the connection broke: the server closed without"),
        (b"220 mail.example ESMTP\r\n", None, "the connection broke: the answer is not HTTP"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", 200, "in the middle of the reply"),
        (b"HTTP/1.1 307 T\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", 307, "HTTP 307 to /x: T"),
        (HEAD + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b garbage", 200, "compressed with gzip"),
    ],
)
async def test_what_goes_wrong_is_told(answer, status, error):
    async with raw_server(answer) as url:
        timeline = await send_one_async(ASK, target=Target(url, timeout_s=5))
    assert timeline.status_code == status and error in timeline.error


async def test_a_header_with_a_line_break_is_refused_without_its_value(monkeypatch):
    monkeypatch.setenv("TURBO_LAB_API_KEY", "sk-secret\nX: y")
    timeline = await send_one_async(ASK, target=Target("http://127.0.0.1:9"))
    assert "'Authorization' holds a line break" in timeline.error
    assert "secret" not in timeline.error


def test_a_name_with_two_address_families_is_dialled():
    with MockServer() as server:
        port = server.base_url.rpartition(":")[2]
        target = Target(f"http://localhost:{port}", timeout_s=10)

        async def both():
            async with open_channel(target) as channel:
                asks = [stream_one(ASK, channel=channel) for _ in range(3)]
                return await asyncio.gather(*asks)

        assert [t.error for t in asyncio.run(both())] == [None] * 3


def test_user_and_password_in_the_address_become_a_header():
    head = wire.request_head("http://me:a%20b@h:8/v1/x", {}, body_bytes=0).decode()
    assert "Authorization: Basic bWU6YSBi\r\n" in head and "Host: h:8\r\n" in head


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for a certificate")
async def test_https_with_a_checked_certificate(tmp_path, monkeypatch):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    app, connections = MockApp(Script()), set()
    server = await asyncio.get_running_loop().create_server(
        lambda: HttpConnection(app.handle, connections), "127.0.0.1", 0, ssl=context
    )
    target = Target(f"https://localhost:{server.sockets[0].getsockname()[1]}", timeout_s=10)
    refused = await send_one_async(ASK, target=target)
    assert "cannot connect" in refused.error and "certificate verify failed" in refused.error
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    timeline = await send_one_async(ASK, target=target)
    server.close()
    assert (timeline.error, timeline.text) == (None, " t0 t1")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:99999", "1 to 65535"),
        ("http://127.0.0.1:abc", "1 to 65535"),
        ("http://[::1", "http://HOST:PORT"),
        ("http://", "no host"),
        ("http://127.0.0.1:0", "port 0"),
        ("http://127.0.0.1:80 ", "1 to 65535"),
        ("http://127.0. 0.1:80", "blank"),
        ("localhost:8000", "begin with http://"),
    ],
)
def test_what_is_no_address_is_wrong_use_at_once(url, said):
    with pytest.raises(UsageError, match=said):
        Target(url)


async def test_a_connection_that_ended_before_it_was_asked_is_told_at_once():
    """Port forwards accept and close; nobody tells of that end a second time."""

    class Closing(asyncio.Transport):
        def is_closing(self) -> bool:
            return True

    connection = wire.Connection(set(), memoryview(bytearray(8)))
    connection.connection_made(Closing())
    with pytest.raises(EngineError, match="closed the connection at once"):
        async with asyncio.timeout(5):
            await connection.ask(b"GET / HTTP/1.1\r\n\r\n", HttpReply(), lambda *_: False)
