"""The consumer's side of the link: fetch blocks, check each, write it, and never hang or raise."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from turbo_lab.core.errors import TurboLabError
from turbo_lab.engines.kv_connector.codec import decode, wire_bytes
from turbo_lab.engines.kv_connector.store import Geometry
from turbo_lab.engines.kv_connector.wire import Frame, FrameSocket, WireError

Write = Callable[[int, int, np.ndarray], None]


@dataclass(frozen=True)
class Wanted:
    """Blocks ``first`` up to ``end`` of a prefix, from a producer at ``host`` and ``port``.

    ``deadline_s``: for all of it. ``idle_s``: longest pause. ``connect_s``: to get a connection.
    """

    request: str
    host: str
    port: int
    prefix: str
    first: int
    end: int
    geometry: Geometry
    wire: str = "raw"
    deadline_s: float = 120.0
    idle_s: float = 10.0
    connect_s: float = 5.0

    @property
    def blocks(self) -> int:
        """How many blocks."""
        return self.end - self.first

    @property
    def frame_bytes(self) -> int:
        """Payload of one frame: one block of one layer."""
        return wire_bytes(self.geometry.shape, dtype=self.geometry.dtype, wire=self.wire)

    @property
    def payload_bytes(self) -> int:
        """Payload of the whole transfer, by the formula."""
        return self.blocks * len(self.geometry.layers) * self.frame_bytes


@dataclass
class Fetched:
    """What came: ``blocks`` whole ones, verified and written; ``reason`` when it is not all."""

    blocks: int = 0
    payload_bytes: int = 0
    framing_bytes: int = 0
    seconds: float = 0.0
    first_frame_s: float = 0.0
    decode_s: float = 0.0
    reason: str | None = field(default=None)


def fetch(wanted: Wanted, *, write: Write) -> Fetched:
    """Fetch and write blocks in order.

    ``write(block, layer, data)`` gets the number of the block within the transfer (from 0), the
    number of the layer, and the block's bytes as the engine stores them. Whatever goes wrong ends
    the transfer and is told in ``reason``; blocks before it stay valid.
    """
    found, started_s = Fetched(), time.perf_counter()
    deadline_s = time.monotonic() + wanted.deadline_s
    connect_s = min(wanted.connect_s, wanted.deadline_s)
    try:
        with socket.create_connection((wanted.host, wanted.port), timeout=connect_s) as sock:
            line = FrameSocket(sock, deadline_s=deadline_s, idle_s=wanted.idle_s)
            try:
                _receive(line, wanted, found, write, started_s)
            finally:
                found.payload_bytes, found.framing_bytes = line.payload_bytes, line.framing_bytes
    except TurboLabError as error:
        found.reason = str(error)
    except OSError as error:
        found.reason = f"no connection to {wanted.host}:{wanted.port}: {error.strerror or error}"
    found.seconds = time.perf_counter() - started_s
    return found


def _receive(
    line: FrameSocket, wanted: Wanted, found: Fetched, write: Write, started_s: float
) -> None:
    line.send({"kind": "fetch", "prefix": wanted.prefix, "first": wanted.first, "end": wanted.end,
               "wire": wanted.wire, "request": wanted.request})  # fmt: skip
    told = _expect(line.receive(), "geometry")
    if difference := wanted.geometry.difference(told.header):
        raise WireError(f"the engines do not fit together: {difference}")
    found.first_frame_s = time.perf_counter() - started_s
    for block in range(wanted.blocks):
        for layer in range(len(wanted.geometry.layers)):
            frame = _expect(line.receive(most_payload_bytes=wanted.frame_bytes), "block")
            _check(frame, wanted, block=block, layer=layer)
            start_s = time.perf_counter()
            data = decode(np.frombuffer(frame.payload, dtype=np.uint8), wire=wanted.wire,
                          shape=wanted.geometry.shape, dtype=wanted.geometry.dtype)  # fmt: skip
            write(block, layer, data)
            found.decode_s += time.perf_counter() - start_s
        found.blocks = block + 1
    _expect(line.receive(), "end")


def _expect(frame: Frame, kind: str) -> Frame:
    told = frame.header.get("kind")
    if told == "error":
        raise WireError(str(frame.header.get("reason")))
    if told != kind:
        raise WireError(f"a frame of kind {told!r} came where {kind!r} was due")
    return frame


def _check(frame: Frame, wanted: Wanted, *, block: int, layer: int) -> None:
    due = {"prefix": wanted.prefix, "block": wanted.first + block, "wire": wanted.wire,
           "layer": wanted.geometry.layers[layer]}  # fmt: skip
    for name, value in due.items():
        if frame.header.get(name) != value:
            raise WireError(f"{name} {frame.header.get(name)!r} came where {value!r} was due")
    if len(frame.payload) != wanted.frame_bytes:
        raise WireError(f"a block has {len(frame.payload)} bytes; due are {wanted.frame_bytes}")
