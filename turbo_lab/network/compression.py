"""Sending fewer bytes: what a compressed message weighs, and up to which link speed it pays.

Compressing costs time at both ends and saves bytes on the link, so it wins on slow links and loses
on fast ones. The break-even rate is ``saved bytes / time of coding``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError, did_you_mean

FORMATS = ("fp32", "fp16", "bf16", "int8", "topk")
INT8_BLOCK = 256
SCALE_BYTES, INDEX_BYTES, VALUE_BYTES = 4, 4, 4
_PLAIN = {"fp32": 4, "fp16": 2, "bf16": 2}


def message_bytes(elements: int, *, form: str, kept_share: float = 0.01) -> int:
    """Bytes of ``elements`` values in a format.

    - fp32, fp16, bf16: 4 or 2 per value.
    - int8: 1 per value and an fp32 scale per block of 256.
    - topk: the ``kept_share`` largest, each as an fp32 value and a 32-bit index.

    Only plain formats can be summed on the way (all-reduce); the others are gathered and summed
    after decoding, which sends ``(n-1)`` messages per rank instead of ``2(n-1)/n``.

    Raises UsageError for an unknown format or a share outside 0 to 1.
    """
    if form not in FORMATS:
        raise UsageError(f"There is no format {form!r}.{did_you_mean(form, list(FORMATS))}")
    if elements < 0 or not 0 < kept_share <= 1:
        raise UsageError(
            f"elements {elements}, kept_share {kept_share}; allowed: 0 or more, above 0 up to 1"
        )
    if form in _PLAIN:
        return elements * _PLAIN[form]
    if form == "int8":
        return elements + SCALE_BYTES * -(-elements // INT8_BLOCK)
    return math.ceil(elements * kept_share) * (VALUE_BYTES + INDEX_BYTES)


def all_reduce_payload_bytes(
    elements: int, *, ranks: int, form: str, kept_share: float = 0.01
) -> float:
    """What each rank sends to sum ``elements`` values: ring all-reduce, or all-gather of codes."""
    if ranks < 2:
        raise UsageError(f"{ranks} ranks; a collective needs at least 2")
    size = message_bytes(elements, form=form, kept_share=kept_share)
    return size * (2 * (ranks - 1) / ranks if form in _PLAIN else ranks - 1)


@dataclass(frozen=True)
class Compression:
    """One exchange with and without compression. Payload is per rank and direction."""

    plain_bytes: float
    coded_bytes: float
    coding_s: float  # encoding and decoding, measured

    def __post_init__(self) -> None:
        """Refuse negative parts."""
        if min(self.plain_bytes, self.coded_bytes, self.coding_s) < 0:
            raise UsageError(f"{self}: bytes and seconds must be 0 or more")

    def speedup(self, rate_bytes_s: float) -> float:
        """Time without over time with compression on a link of that rate; above 1 it pays."""
        if not rate_bytes_s > 0:
            raise UsageError(f"the rate is {rate_bytes_s} bytes/s; it must be above 0")
        coded_s = self.coding_s + self.coded_bytes / rate_bytes_s
        return (self.plain_bytes / rate_bytes_s) / coded_s if coded_s else math.inf

    @property
    def break_even_bytes_s(self) -> float:
        """Link rate at which both are equally fast; slower links gain. 0: it never pays."""
        saved = self.plain_bytes - self.coded_bytes
        if saved <= 0:
            return 0.0
        return saved / self.coding_s if self.coding_s else math.inf
