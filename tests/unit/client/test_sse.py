"""W15: the details of server-sent events."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.client import sse
from turbo_lab.core.errors import EngineError


def parse(*blocks: bytes) -> list[bytes]:
    parser = sse.SseParser()
    out = [data for block in blocks for _, data in parser.feed(block)]
    return out + [data for _, data in parser.close()]


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data: a\r\n\r\n", [b"a"]),
        (b"data: a\r\r", [b"a"]),
        (b": ping\n\ndata: a\n\n", [b"a"]),
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"event: x\nid: 3\nretry: 5\ndata: a\n\n", [b"a"]),
        (b"data:  a \n\n", [b" a "]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        (b"data\n\n", [b""]),
        (b"\n\n\n", []),
        (b"", []),
        (b"nonsense\n\n", []),
    ],
)
def test_w15_grammar(raw, want):
    assert parse(raw) == want


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=12)


@given(
    st.lists(TEXT, min_size=1, max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 400), max_size=8),
)
def test_any_split_of_the_bytes_gives_the_same_events(texts, end, cuts):
    payloads = [json.dumps({"t": t}, ensure_ascii=False) for t in texts]
    raw = "".join(f"data: {p}{end}: c{end}{end}" for p in payloads).encode()
    edges = [0, *sorted(min(c, len(raw)) for c in cuts), len(raw)]
    blocks = [raw[a:b] for a, b in itertools.pairwise(edges)]
    assert [json.loads(x)["t"] for x in parse(*blocks)] == texts


def test_an_event_name_is_kept():
    parser = sse.SseParser()
    assert list(parser.feed(b"event: error\ndata: x\n\n")) == [(b"error", b"x")]


def test_endless_event_is_bounded(monkeypatch):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    parser = sse.SseParser()
    with pytest.raises(EngineError, match="larger"):
        for _ in range(100):
            list(parser.feed(b"x" * 100))
