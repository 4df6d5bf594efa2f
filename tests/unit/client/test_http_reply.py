"""HTTP/1.1 responses out of bytes, however they are cut."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.client.http_reply import HttpReply
from turbo_lab.core.errors import EngineError


def read(*blocks: bytes, ends: bool = False) -> tuple[HttpReply, bytes]:
    reply, body = HttpReply(), b""
    for block in blocks:
        body += b"".join(reply.feed(block))
    if ends:
        reply.eof()
    return reply, body


def cut(raw: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(c % len(raw) for c in cuts), len(raw)]
    return [raw[a:b] for a, b in itertools.pairwise(edges) if a < b]


def chunked(parts: list[bytes], *, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    framed = b"".join(b"%x%b\r\n%b\r\n" % (len(p), extension, p) for p in parts if p)
    return framed + b"0\r\n" + trailer + b"\r\n"


BODIES = st.lists(st.binary(max_size=40), max_size=5)
CUTS = st.lists(st.integers(0, 2000), max_size=12)


@given(
    BODIES,
    CUTS,
    st.sampled_from([b"", b";a=b"]),
    st.sampled_from([b"", b"X-Sum: 1\r\n"]),
    st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n"]),
)
def test_any_cut_of_a_chunked_response_gives_the_same_body(parts, cuts, extension, trailer, before):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: A/b; x=1\r\n\r\n"
    raw = before + head + chunked(parts, extension=extension, trailer=trailer)
    reply, body = read(*cut(raw, cuts))
    assert body == b"".join(parts)
    assert (reply.status, reply.reason, reply.content_type) == (200, "OK", "a/b")
    assert reply.done and reply.reusable
    early, _ = read(*cut(raw[:-1], cuts))
    assert not early.done
    with pytest.raises(EngineError, match="closed"):
        early.eof()


@given(st.binary(min_size=1, max_size=60), CUTS)
def test_any_cut_of_a_response_with_a_length_gives_the_same_body(content, cuts):
    raw = b"HTTP/1.1 429 Slow down\r\ncontent-length: %d\r\n\r\n" % len(content) + content
    reply, body = read(*cut(raw, cuts))
    assert (reply.status, reply.reason, body) == (429, "Slow down", content)
    assert reply.done and reply.reusable


def test_bytes_are_handed_on_before_their_chunk_is_whole():
    reply = HttpReply()
    reply.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert reply.feed(b"a\r\n12345") == [b"12345"]
    assert reply.feed(b"67890\r\n3\r\nabc\r\n") == [b"67890", b"abc"]


@pytest.mark.parametrize(
    ("head", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: Keep-Alive\r\n\r\n", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n5\r\n", False),
    ],
)
def test_which_connections_are_used_again(head, reusable):
    reply, _ = read(head)
    assert (reply.done, reply.reusable) == (True, reusable)


def test_a_body_without_a_length_ends_with_the_connection():
    reply, body = read(b"HTTP/1.1 200 OK\r\n\r\nab", b"c", ends=True)
    assert (body, reply.done, reply.reusable) == (b"abc", True, False)


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"\x16\x03\x01\x02",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1_0\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 5000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"y" * 70_000,
    ],
)
def test_what_is_not_http_is_refused_and_bounded(raw):
    with pytest.raises(EngineError):
        read(raw)


@given(st.binary(max_size=80), CUTS)
def test_garbage_only_ever_raises_its_own_error(raw, cuts):
    for start in (b"", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        with contextlib.suppress(EngineError):
            read(*cut(start + raw, cuts) if start + raw else [], ends=True)
