"""From payload to bytes on an interface: headers of TCP, IP and Ethernet, and acknowledgements.

Linux counts a frame without its preamble and checksum: 14 (Ethernet) + 20 (IPv4) + 32 (TCP with
time stamps) = 66 bytes beside the payload, in data and acknowledgements alike. An interface that
hands on several packets as one buffer counts their headers once, so a count of packets is needed to
be exact: ``stream_bytes = bytes - 66 * packets``.
"""

from __future__ import annotations

from dataclasses import dataclass

from turbo_lab.core.errors import UsageError
from turbo_lab.network.hosts import Counters
from turbo_lab.network.link import ETHERNET_BYTES

IPV4_BYTES = 20
TCP_BYTES = 20
TIMESTAMP_BYTES = 12
HEADER_BYTES = ETHERNET_BYTES + IPV4_BYTES + TCP_BYTES + TIMESTAMP_BYTES
SEGMENTS_PER_ACK = 2  # the receiver may acknowledge every second full segment


@dataclass(frozen=True)
class WireBytes:
    """Predicted frames of one direction and of the acknowledgements that come back."""

    payload_bytes: int
    data_packets: int
    most_ack_packets: int

    @property
    def data_bytes(self) -> int:
        """Bytes that the sender's interface counts, acknowledgements apart."""
        return self.payload_bytes + HEADER_BYTES * self.data_packets

    @property
    def most_ack_bytes(self) -> int:
        """At most this many bytes come back; a receiver that reads in large parts sends fewer."""
        return HEADER_BYTES * self.most_ack_packets

    @property
    def efficiency(self) -> float:
        """Payload over all bytes sent in its direction."""
        return self.payload_bytes / self.data_bytes if self.data_bytes else 1.0


def segment_bytes(mtu_bytes: int) -> int:
    """Payload of a full TCP segment: the MTU less 52 bytes (1,448 of 1,500)."""
    payload = mtu_bytes - IPV4_BYTES - TCP_BYTES - TIMESTAMP_BYTES
    if payload < 1:
        raise UsageError(f"an MTU of {mtu_bytes} bytes leaves no room for payload")
    return payload


def wire_bytes(
    payload_bytes: int, *, mtu_bytes: int = 1500, segments_per_buffer: int = 1
) -> WireBytes:
    """Frames of one TCP stream of ``payload_bytes``, sent in full segments, nothing lost.

    ``segments_per_buffer``: packets that the kernel hands on as one (``Link.segments_per_buffer``);
    what is counted is then the buffer.
    """
    if payload_bytes < 0 or segments_per_buffer < 1:
        raise UsageError(
            f"payload {payload_bytes} bytes, {segments_per_buffer} segments per buffer; allowed: 0 "
            "or more, and 1 or more"
        )
    segments = -(-payload_bytes // segment_bytes(mtu_bytes))
    buffers = -(-segments // segments_per_buffer)
    return WireBytes(payload_bytes, buffers, -(-segments // SEGMENTS_PER_ACK))


def wire_efficiency(mtu_bytes: int) -> float:
    """Best share of a link's rate that payload can have: 0.956 at MTU 1,500, 0.993 at 9,000."""
    payload = segment_bytes(mtu_bytes)
    return payload / (payload + HEADER_BYTES)


def stream_bytes(counted: Counters) -> tuple[int, int]:
    """(sent, received) bytes that TCP carried, from an interface's counters.

    Exact but for what opens and closes connections: a SYN has 8 bytes of options more, an address
    question 24 bytes less (24 and 8 bytes per connection at most), and repeated segments count
    again.
    """
    return (
        counted.sent_bytes - HEADER_BYTES * counted.sent_packets,
        counted.received_bytes - HEADER_BYTES * counted.received_packets,
    )
