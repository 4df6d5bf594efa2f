"""Fetching traces from a server of this test: whole, in two goes, changed, cut, too long."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from turbo_lab.core.errors import DownloadError, EngineError, UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.workload.trace_fetch import (
    TraceSource,
    fetch_trace,
    trace_source,
    trace_sources,
)
from turbo_lab.workload.trace_formats import FORMAT_NAMES

BODY = b"arrival_s,prompt_tokens,output_tokens\n" + b"0,5,1\n" * 50_000
SHARED = repository_root().parent / "shared" / "traces"


@dataclass
class Site:
    """What the server says. ``cut``: bytes after which the connection breaks, once."""

    body: bytes = BODY
    cut: int | None = None
    ranges: bool = True
    status: int = 200
    asked: list[str | None] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def site() -> Iterator[Site]:
    state = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            state.asked.append(asked)
            start = int(asked[6:-1]) if asked and state.ranges else 0
            if state.status != 200:
                self.send_error(state.status)
                return
            rest = state.body[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            cut, state.cut = state.cut, None
            self.wfile.write(rest[:cut])

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/some/trace.csv"
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def source(site: Site) -> TraceSource:
    digest = hashlib.sha256(BODY).hexdigest()
    return TraceSource("mine", "A trace", "turbo-lab", site.url, "CC0-1.0", digest, "file",
                       bytes=len(BODY), requests=50_000)  # fmt: skip


def test_size_and_licence_come_first_and_the_file_is_whole(tmp_path: Path, site, source):
    said: list[str] = []
    path = fetch_trace(source, folder=tmp_path / "new", report=said.append)
    assert path.name == "mine.csv" and path.read_bytes() == BODY
    assert "0.3 MB" in said[0] and "CC0-1.0" in said[0] and site.url in said[0]
    assert fetch_trace(source, folder=tmp_path / "new", report=said.append) == path
    assert len(site.asked) == 1 and "there already" in said[-1]


def test_a_broken_download_goes_on_where_it_stopped(tmp_path, site, source):
    site.cut = 100_000
    with pytest.raises(DownloadError, match="100,000 bytes are kept: run it again"):
        fetch_trace(source, folder=tmp_path, report=lambda _: None)
    assert not (tmp_path / "mine.csv").exists()
    path = fetch_trace(source, folder=tmp_path, report=lambda _: None)
    assert site.asked == [None, "bytes=100000-"] and path.read_bytes() == BODY


def test_a_server_without_ranges_starts_anew(tmp_path, site, source):
    site.cut, site.ranges = 100_000, False
    with pytest.raises(DownloadError):
        fetch_trace(source, folder=tmp_path, report=lambda _: None)
    assert fetch_trace(source, folder=tmp_path, report=lambda _: None).read_bytes() == BODY


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (BODY.replace(b"0,5,1", b"0,6,1"), "not the promised"),
        (BODY + b"0,5,1\n", "more than the promised 300,038 bytes"),
    ],
)
def test_another_file_is_thrown_away(tmp_path, site, source, body, reason):
    site.body = body
    with pytest.raises(DownloadError, match=reason):
        fetch_trace(source, folder=tmp_path, report=lambda _: None)
    assert not list(tmp_path.glob("*mine.csv*")) + list(tmp_path.glob(".mine.csv*"))


def test_a_damaged_copy_is_replaced(tmp_path, site, source):
    (tmp_path / "mine.csv").write_bytes(BODY[:-1])
    assert fetch_trace(source, folder=tmp_path, report=lambda _: None).read_bytes() == BODY


def test_without_a_digest_the_first_is_trusted_only_when_asked(tmp_path, site, source):
    bare = replace(source, sha256="", checksum_from="unknown", bytes=None)
    with pytest.raises(UsageError, match="--trust-first"):
        fetch_trace(bare, folder=tmp_path, report=lambda _: None)
    assert site.asked == []
    said: list[str] = []
    path = fetch_trace(bare, folder=tmp_path, trust_first=True, report=said.append)
    assert any(source.sha256 in line for line in said)
    path.unlink()
    site.body = BODY[:-6]  # shorter, as another file would be
    with pytest.raises(DownloadError, match="not the promised"):
        fetch_trace(bare, folder=tmp_path, trust_first=True, report=lambda _: None)


def test_refusals_tell_the_next_step(tmp_path, site, source):
    site.status = 404
    with pytest.raises(DownloadError, match="answered 404"):
        fetch_trace(source, folder=tmp_path, report=lambda _: None)
    closed = replace(source, url="http://127.0.0.1:9/trace.csv")
    with pytest.raises(DownloadError, match="could not be fetched"):
        fetch_trace(closed, folder=tmp_path, report=lambda _: None)
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="cannot keep the trace"):
        fetch_trace(source, folder=tmp_path / "file" / "below", report=lambda _: None)
    with pytest.raises(UsageError, match="Did you mean 'burstgpt-1'"):
        fetch_trace("burstgpt1")


def test_every_listed_source_is_complete():
    listed = trace_sources()
    assert len(listed) >= 14
    for source in listed.values():
        assert source.format in FORMAT_NAMES
        assert source.url.startswith("https://")
        assert source.licence in ("CC-BY-4.0", "Apache-2.0")
        assert bool(source.sha256) == (source.checksum_from != "unknown")
        assert len(source.sha256) in (0, 64)


@pytest.mark.skipif(not SHARED.exists(), reason="the public traces are not on this machine")
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("azure-2023-conversation", "AzureLLMInferenceTrace_conv.csv"),
        ("mooncake-conversation", "mooncake_conversation_trace.jsonl"),
    ],
)
def test_digests_of_the_files_that_are_here(name, file):
    content = (SHARED / file).read_bytes()
    listed = trace_source(name)
    assert (listed.bytes, listed.sha256) == (len(content), hashlib.sha256(content).hexdigest())
