"""The layout of a datagram, to the byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.turbo.packet import (
    PART,
    RESULT,
    Packet,
    PacketError,
    datagram_bytes,
    decode,
    frame_bytes,
)


def test_every_field_lies_where_the_table_says() -> None:
    packet = Packet(RESULT, 3, 0x0102, 0x0304, 250, 0x05060708, 0x090A0B0C, b"\x80\x7f")
    assert packet.encode() == bytes.fromhex("0203 0102 0304 fa02 05060708 090a0b0c 807f")
    assert packet.stream == (0x05060708, 0x0102, 0x0304)
    assert (datagram_bytes(128), frame_bytes(128)) == (144, 186)


@given(
    st.builds(
        Packet, st.integers(1, 3), st.integers(0, 255), st.integers(0, 2**16 - 1),
        st.integers(0, 2**16 - 1), st.integers(0, 255), st.integers(0, 2**32 - 1),
        st.integers(0, 2**32 - 1), st.binary(max_size=255),
    )
)  # fmt: skip
def test_a_packet_comes_back_as_it_went(packet: Packet) -> None:
    assert decode(packet.encode()) == packet
    assert len(packet.encode()) == 16 + len(packet.values)


@given(st.binary(max_size=40))
def test_other_datagrams_are_refused_or_are_packets(data: bytes) -> None:
    try:
        assert decode(data).encode() == data
    except PacketError as error:
        assert "no packet" in str(error)


def test_a_truncated_packet_is_refused() -> None:
    whole = Packet(PART, 0, 0, 0, 0, 0, 0, b"abc").encode()
    for cut in (whole[:-1], whole + b"x", b""):
        with pytest.raises(PacketError):
            decode(cut)


def test_fields_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="gamma=300"):
        Packet(PART, 0, 0, 0, 300, 0, 0).encode()
    with pytest.raises(UsageError, match="allowed: 1 to 255"):
        datagram_bytes(256)
