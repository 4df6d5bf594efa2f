"""One datagram: the weight and the values of one head of one layer of one sequence.

Our own layout in the artifact's spirit (layer, head, sequence, gamma, values); the artifact has no
step number and no room for a sender, so it cannot tell a repeated packet from a new one:

    byte   0     kind: 1 part, 2 result, 3 request
           1     node: who sent it (part of a tree, result), or whose part it is (ring)
           2-3   layer
           4-5   head
           6     gamma code, unsigned
           7     number of values
           8-11  sequence: which request of the batch
           12-15 step: which decode step of it
           16-   values, signed bytes

Numbers are big-endian. UDP, IPv4 and Ethernet put 42 bytes before it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from turbo_lab.core.errors import TurboLabError, UsageError
from turbo_lab.network.headers import IPV4_BYTES
from turbo_lab.network.link import ETHERNET_BYTES

PART, RESULT, REQUEST = 1, 2, 3
KINDS = {PART: "part", RESULT: "result", REQUEST: "request"}
_HEAD = struct.Struct("!BBHHBBII")
HEAD_BYTES = _HEAD.size
UDP_BYTES = 8
WIRE_BYTES = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
MOST_VALUES = 255

Stream = tuple[int, int, int]  # sequence, layer, head


class PacketError(TurboLabError):
    """A datagram that is no packet of ours; the receiver counts and drops it."""


class Packet(NamedTuple):
    """One datagram. ``values`` are signed bytes; a request carries none."""

    kind: int
    node: int
    layer: int
    head: int
    gamma: int
    sequence: int
    step: int
    values: bytes = b""

    @property
    def stream(self) -> Stream:
        """What it belongs to at every step."""
        return self.sequence, self.layer, self.head

    def encode(self) -> bytes:
        """The datagram. Raises UsageError for a field that does not fit."""
        try:
            head = _HEAD.pack(
                self.kind, self.node, self.layer, self.head, self.gamma, len(self.values),
                self.sequence, self.step,
            )  # fmt: skip
        except struct.error as error:
            raise UsageError(
                f"{self._replace(values=b'')} does not fit its fields: {error}"
            ) from None
        return head + self.values


def decode(data: bytes) -> Packet:
    """The packet in a datagram. Raises PacketError for a wrong kind or length."""
    if len(data) < HEAD_BYTES:
        raise PacketError(f"{len(data)} bytes are no packet; the head alone has {HEAD_BYTES}")
    kind, node, layer, head, gamma, count, sequence, step = _HEAD.unpack_from(data)
    if kind not in KINDS or len(data) != HEAD_BYTES + count:
        raise PacketError(
            f"kind {kind} with {count} values in {len(data)} bytes is no packet; kinds: "
            f"{', '.join(f'{number} {name}' for number, name in KINDS.items())}"
        )
    return Packet(kind, node, layer, head, gamma, sequence, step, data[HEAD_BYTES:])


def datagram_bytes(dim: int) -> int:
    """Payload of one datagram: 16 bytes of head and one byte per value."""
    if not 1 <= dim <= MOST_VALUES:
        raise UsageError(f"{dim} values do not fit one datagram; allowed: 1 to {MOST_VALUES}")
    return HEAD_BYTES + dim


def frame_bytes(dim: int) -> int:
    """What an interface counts for it: 42 bytes of Ethernet, IPv4 and UDP more."""
    return datagram_bytes(dim) + WIRE_BYTES
