"""gloo's traffic, header bytes, overlap: closed forms against their own definitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.core.units import MiB
from turbo_lab.network.algorithms import received_bytes, rounds, sent_bytes
from turbo_lab.network.gloo import KINDS, all_reduce_segments, gloo_traffic
from turbo_lab.network.headers import (
    HEADER_BYTES,
    segment_bytes,
    stream_bytes,
    wire_bytes,
    wire_efficiency,
)
from turbo_lab.network.hosts import Counters
from turbo_lab.network.overlap import Overlap


@given(kind=st.sampled_from(KINDS), ranks=st.integers(2, 8), parts=st.integers(0, 2_000_000))
def test_gloos_ranks_receive_what_they_send(kind: str, ranks: int, parts: int) -> None:
    total = parts * 4 * (ranks if kind in ("all_gather", "all_to_all") else 1)
    all_ranks = [gloo_traffic(kind, total, ranks=ranks, rank=r) for r in range(ranks)]
    for sent, got in (("sent_bytes", "received_bytes"), ("sent_messages", "received_messages"),
                      ("stream_sent_bytes", "stream_received_bytes")):  # fmt: skip
        assert sum(getattr(t, sent) for t in all_ranks) == sum(getattr(t, got) for t in all_ranks)


@given(ranks=st.integers(2, 8), elements=st.integers(0, 3_000_000))
def test_all_reduce_carries_twice_all_but_one_share(ranks: int, elements: int) -> None:
    total = 4 * elements
    chunks = all_reduce_segments(total, ranks=ranks)
    assert sum(map(sum, chunks)) == total
    assert all(size <= MiB for chunk in chunks for size in chunk)
    sent = sum(
        gloo_traffic("all_reduce", total, ranks=ranks, rank=r).sent_bytes for r in range(ranks)
    )
    assert sent == 2 * (ranks - 1) * total


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_where_ranks_divide_the_size_gloo_is_the_plain_ring(ranks: int) -> None:
    total = 4 * 2 * ranks * 1000
    for kind, algorithm in (
        ("all_reduce", "ring"),
        ("all_gather", "ring"),
        ("all_to_all", "direct"),
    ):
        steps = rounds(kind, total, ranks=ranks, algorithm=algorithm)
        for rank in range(ranks):
            found = gloo_traffic(kind, total, ranks=ranks, rank=rank)
            assert found.sent_bytes == sent_bytes(steps, rank=rank)
            assert found.received_bytes == received_bytes(steps, rank=rank)


def test_uneven_parts_are_refused_with_the_next_size() -> None:
    with pytest.raises(UsageError, match="pad to a multiple of 12 bytes"):
        gloo_traffic("all_gather", 16, ranks=3, rank=0)
    with pytest.raises(UsageError, match=r"no gloo traffic of 'gather'"):
        gloo_traffic("gather", 16, ranks=2, rank=0)


def test_headers_of_a_stream() -> None:
    assert HEADER_BYTES == 66 and segment_bytes(1500) == 1448
    assert round(wire_efficiency(1500), 3) == 0.956 and round(wire_efficiency(9000), 3) == 0.993
    found = wire_bytes(10 * 1448 + 1, mtu_bytes=1500)
    assert (found.data_packets, found.data_bytes) == (11, 10 * 1448 + 1 + 11 * 66)
    assert found.most_ack_bytes == 6 * 66
    joined = wire_bytes(10 * 1448 + 1, mtu_bytes=1500, segments_per_buffer=4)
    assert joined.data_packets == 3


@given(payload=st.integers(0, 10**9), mtu=st.integers(576, 9000), joined=st.integers(1, 44))
def test_counters_give_the_payload_back(payload: int, mtu: int, joined: int) -> None:
    wire = wire_bytes(payload, mtu_bytes=mtu, segments_per_buffer=joined)
    acks = wire.most_ack_packets
    counted = Counters(wire.data_bytes, wire.data_packets, acks * HEADER_BYTES, acks, 0)
    assert stream_bytes(counted) == (payload, 0)


@given(
    compute=st.floats(0, 10), communication=st.floats(1e-6, 10), exposed=st.floats(0, 1),
    pieces=st.integers(1, 100),
)  # fmt: skip
def test_overlap_lies_between_max_and_sum(
    compute: float, communication: float, exposed: float, pieces: int
) -> None:
    step = Overlap(compute, communication)
    total = step.total_s(exposed=exposed)
    assert step.least_s <= total <= step.most_s + 1e-12
    assert step.exposed_share(total) >= exposed - 1e-9
    assert step.least_s <= step.in_pieces_s(pieces) <= step.most_s + 1e-12
    assert step.in_pieces_s(1) == pytest.approx(step.most_s)
    assert step.exposed_share(step.most_s) == pytest.approx(1.0)


def test_wrong_overlap_is_refused() -> None:
    with pytest.raises(UsageError, match="0 to 1"):
        Overlap(1, 1).total_s(exposed=1.5)
    with pytest.raises(UsageError, match="0 or more"):
        Overlap(-1, 1)
