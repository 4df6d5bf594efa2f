"""Frames on the socket between two engines: a fixed part, a JSON header, a payload, one digest.

    magic (4) | header bytes (4) | payload bytes (8) | digest (16) | header | payload

All numbers are little-endian. The digest is BLAKE2b over the two lengths, the header and the
payload, so that a changed bit anywhere in a frame is noticed before its payload is used.
"""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import TurboLabError, UsageError

MAGIC = b"TLKV"
DIGEST_BYTES = 16
MOST_HEADER_BYTES = 65_536
PIECE_BYTES = 65_536
_FIXED = struct.Struct(f"<4sIQ{DIGEST_BYTES}s")
_LENGTHS = struct.Struct("<IQ")


class WireError(TurboLabError):
    """The transfer cannot go on; the message is the reason that the log and the record show."""


@dataclass(frozen=True)
class Frame:
    """One message. ``payload`` is empty for all messages that are no block."""

    header: dict[str, Any]
    payload: bytes | bytearray = b""


def framing_bytes(header: dict[str, Any]) -> int:
    """Bytes of a frame with this header beside its payload."""
    return _FIXED.size + len(_json(header))


def pack(header: dict[str, Any], payload: Any = b"") -> tuple[bytes, memoryview]:
    """What to send: everything before the payload, and the payload (any contiguous buffer)."""
    body, text = memoryview(payload).cast("B"), _json(header)
    if len(text) > MOST_HEADER_BYTES:
        raise UsageError(f"the header has {len(text)} bytes; allowed: {MOST_HEADER_BYTES}")
    lengths = _LENGTHS.pack(len(text), len(body))
    head = _FIXED.pack(MAGIC, len(text), len(body), _digest(lengths, text, body))
    return head + text, body


def unpack(read: Callable[[int], bytes | bytearray], *, most_payload_bytes: int) -> Frame:
    """The next frame of a stream; ``read(n)`` returns exactly n bytes or raises.

    Raises WireError for anything but a whole frame whose digest fits. A payload that is announced
    longer than ``most_payload_bytes`` is refused before a byte of it is read.
    """
    magic, header_bytes, payload_bytes, digest = _FIXED.unpack(bytes(read(_FIXED.size)))
    if magic != MAGIC:
        raise WireError(f"not a frame of this protocol: it begins with {magic!r}")
    if header_bytes > MOST_HEADER_BYTES or payload_bytes > most_payload_bytes:
        raise WireError(
            f"a frame announces a header of {header_bytes} and a payload of {payload_bytes} bytes; "
            f"allowed: {MOST_HEADER_BYTES} and {most_payload_bytes}"
        )
    text, payload = bytes(read(header_bytes)), read(payload_bytes)
    if _digest(_LENGTHS.pack(header_bytes, payload_bytes), text, payload) != digest:
        raise WireError("the digest does not fit: a frame was changed on its way")
    try:
        header = json.loads(text)
    except ValueError as error:
        raise WireError(f"a frame's header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise WireError(f"a frame's header is {type(header).__name__}, wanted is an object")
    return Frame(header, payload)


class FrameSocket:
    """Frames over a connected socket, within a deadline, with all bytes counted.

    ``deadline_s``: on the clock of ``time.monotonic``. ``idle_s``: longest pause without a byte.
    """

    def __init__(self, sock: socket.socket, *, deadline_s: float, idle_s: float) -> None:
        self.sock, self.deadline_s, self.idle_s = sock, deadline_s, idle_s
        self.payload_bytes = self.framing_bytes = 0
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, header: dict[str, Any], payload: Any = b"") -> None:
        """Send one frame. Raises WireError."""
        head, body = pack(header, payload)
        for part in (memoryview(head), body):
            for start in range(0, len(part), PIECE_BYTES):
                self._send_all(part[start : start + PIECE_BYTES])
        self._count(len(head), len(body))

    def receive(self, *, most_payload_bytes: int = 0) -> Frame:
        """The next frame. Raises WireError."""
        frame = unpack(self._read, most_payload_bytes=most_payload_bytes)
        self._count(framing_bytes(frame.header), len(frame.payload))
        return frame

    def _count(self, framing: int, payload: int) -> None:
        self.framing_bytes += framing
        self.payload_bytes += payload

    def _send_all(self, piece: memoryview) -> None:
        sent = 0
        while sent < len(piece):
            sent += self._attempt(lambda rest=piece[sent:]: self.sock.send(rest))

    def _read(self, count: int) -> bytearray:
        data, done = bytearray(count), 0
        view = memoryview(data)
        while done < count:
            got = self._attempt(lambda rest=view[done:]: self.sock.recv_into(rest))
            if not got:
                raise WireError("the other side closed the connection in mid-transfer")
            done += got
        return data

    def _attempt(self, step: Callable[[], int]) -> int:
        left_s = self.deadline_s - time.monotonic()
        if left_s <= 0:
            raise WireError("the transfer passed its deadline")
        self.sock.settimeout(min(left_s, self.idle_s))
        try:
            return step()
        except TimeoutError as error:
            late = time.monotonic() >= self.deadline_s
            what = "the transfer passed its deadline" if late else f"no byte for {self.idle_s:g} s"
            raise WireError(what) from error
        except OSError as error:
            raise WireError(f"the connection broke: {error.strerror or error}") from error


def _digest(*parts: Any) -> bytes:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _json(header: dict[str, Any]) -> bytes:
    return json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
