"""What one link may carry: its rate, the largest packet, and how much may wait in its queue."""

from __future__ import annotations

import re
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError

_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)bit(?:/s)?")
ETHERNET_BYTES = 14
BURST_S = 0.25e-3
LARGEST_BUFFER_BYTES = 65_536
MTU_BYTES = (576, 65_521)  # smallest that IPv4 hosts must take; largest that a veth pair takes


def parse_rate(text: str | float) -> float:
    """Bits per second of ``"1gbit"``, ``"100mbit"``, ``"2.5 gbit/s"`` or of a plain number.

    Prefixes are decimal, as ``tc`` and data sheets have them. Raises UsageError.
    """
    if isinstance(text, (int, float)):
        rate_bit_s = float(text)
    else:
        found = _RATE.fullmatch(text.strip().lower())
        rate_bit_s = float(found[1]) * _PREFIXES[found[2]] if found else 0.0
    if not rate_bit_s > 0 or rate_bit_s == float("inf"):
        raise UsageError(
            f"the link rate {text!r} is none; allowed: a number of bits per second above 0, or a "
            "text such as 1gbit, 100mbit, 2.5gbit"
        )
    return rate_bit_s


@dataclass(frozen=True)
class Link:
    """One host's link to the switch, the same in both directions.

    ``rate_bit_s``: None for as fast as the machine copies. ``mtu_bytes``: largest IP packet.
    ``queue_s``: how long a packet may wait at the shaped port before it is dropped.
    ``whole_packets``: the kernel may not carry several packets as one buffer (a card's
    segmentation offload). True where single packets matter: several times the work per byte.
    """

    rate_bit_s: float | None = None
    mtu_bytes: int = 1500
    queue_s: float = 0.02
    whole_packets: bool = False

    def __post_init__(self) -> None:
        """Refuse values that no link can have."""
        low, high = MTU_BYTES
        if not low <= self.mtu_bytes <= high:
            raise UsageError(f"mtu_bytes is {self.mtu_bytes}; allowed: {low} to {high}")
        if self.rate_bit_s is not None:
            parse_rate(self.rate_bit_s)
        if not 0 < self.queue_s <= 10:
            raise UsageError(f"queue_s is {self.queue_s}; allowed: above 0 up to 10 s")

    @property
    def rate_bytes_s(self) -> float | None:
        """The rate in bytes per second; None where the link is not shaped."""
        return None if self.rate_bit_s is None else self.rate_bit_s / 8

    @property
    def burst_bytes(self) -> int:
        """What may pass at once after a pause: a quarter of a millisecond at the rate.

        At least two packets, or none would ever pass. A message smaller than this meets no limit,
        so it is kept as small as the kernel's timer lets it be without losing rate.
        """
        frame_bytes = self.mtu_bytes + ETHERNET_BYTES
        if self.rate_bytes_s is None:
            return 2 * max(frame_bytes, LARGEST_BUFFER_BYTES)
        return max(2 * frame_bytes, int(self.rate_bytes_s * BURST_S))

    @property
    def segments_per_buffer(self) -> int:
        """Packets that the kernel may carry as one buffer through a link (1: every one alone).

        Counters and queues then see buffers; the shaper still counts every packet's headers.
        """
        if self.whole_packets:
            return 1
        most_bytes = min(self.burst_bytes // 2, LARGEST_BUFFER_BYTES)
        return max(1, most_bytes // self.mtu_bytes)

    @property
    def queue_bytes(self) -> int:
        """What may wait at a shaped port: ``queue_s`` at the rate, at least eight packets."""
        return max(8 * self.mtu_bytes, int((self.rate_bytes_s or 0) * self.queue_s))

    def describe(self) -> str:
        """``1 Gbit/s, MTU 1500``."""
        if self.rate_bit_s is None:
            return f"not shaped, MTU {self.mtu_bytes}"
        for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
            if self.rate_bit_s >= size:
                return f"{self.rate_bit_s / size:g} {unit}, MTU {self.mtu_bytes}"
        return f"{self.rate_bit_s:g} bit/s, MTU {self.mtu_bytes}"


def as_link(link: Link | str | float | None) -> Link:
    """A Link from itself, from a rate such as ``"1gbit"``, or (None) one that is not shaped."""
    if isinstance(link, Link):
        return link
    return Link() if link is None else Link(parse_rate(link))
