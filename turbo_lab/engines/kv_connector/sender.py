"""The producer's side of the link: a listening socket, a thread for each consumer that calls.

A conversation: the consumer sends one frame (``prefix``, ``first`` block, ``wire``, ``request``);
the producer answers with its geometry, then every block's layers in order, then an end frame with
what it has sent. Block after block, not layer after layer: what has arrived before a connection
breaks is then a shorter prefix that can still be used.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any

from turbo_lab.core.errors import TurboLabError
from turbo_lab.engines.kv_connector.codec import encode
from turbo_lab.engines.kv_connector.journal import Note
from turbo_lab.engines.kv_connector.store import KvStore, Prefix
from turbo_lab.engines.kv_connector.wire import Frame, FrameSocket, WireError

BACKLOG = 64


class KvSender:
    """Serves a store's prefixes. ``start`` binds and returns; ``close`` ends all its threads.

    ``deadline_s``: longest time for one transfer. ``idle_s``: longest pause of a consumer.
    """

    def __init__(
        self, store: KvStore, *, note: Note, host: str = "127.0.0.1", port: int = 0,
        deadline_s: float = 120.0, idle_s: float = 10.0,
    ) -> None:  # fmt: skip
        self.store, self.note = store, note
        self.deadline_s, self.idle_s = deadline_s, idle_s
        self._asked = (host, port)
        self._door: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on."""
        if self._door is None:
            raise TurboLabError("the sender does not listen; call start() first")
        return self._door.getsockname()[:2]

    def start(self) -> KvSender:
        """Listen. Raises TurboLabError when the port is taken."""
        try:
            self._door = socket.create_server(self._asked, backlog=BACKLOG)
        except OSError as error:
            raise TurboLabError(
                f"cannot listen on {self._asked[0]}:{self._asked[1]}: {error.strerror}. "
                "Name another listen_port, or 0 for a free one."
            ) from error
        threading.Thread(target=self._admit, args=(self._door,), daemon=True).start()
        return self

    def close(self) -> None:
        """Stop listening and cut all transfers."""
        door, self._door = self._door, None
        with self._lock:
            ends = [*self._open, *([door] if door else [])]
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _admit(self, door: socket.socket) -> None:
        while True:
            try:
                sock, _ = door.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        line = FrameSocket(
            sock, deadline_s=time.monotonic() + self.deadline_s, idle_s=self.idle_s
        )  # fmt: skip
        asked: dict[str, Any] = {}
        started_s = time.perf_counter()
        try:
            asked = line.receive().header
            sent = self._answer(line, asked)
            self.note("sent", request=asked.get("request"), prefix=asked.get("prefix"),
                      wire=asked.get("wire"), blocks=sent, payload_bytes=line.payload_bytes,
                      framing_bytes=line.framing_bytes,
                      seconds=time.perf_counter() - started_s)  # fmt: skip
        except TurboLabError as error:
            self.note("send_failed", request=asked.get("request"), prefix=asked.get("prefix"),
                      payload_bytes=line.payload_bytes, reason=str(error))  # fmt: skip
            if not isinstance(error, WireError):
                with contextlib.suppress(WireError):
                    line.send({"kind": "error", "reason": str(error)})
        finally:
            with self._lock:
                self._open.discard(sock)
            sock.close()

    def _answer(self, line: FrameSocket, asked: dict[str, Any]) -> int:
        """Send what was asked for; returns the number of blocks."""
        prefix = self.store.get(str(asked.get("prefix")))
        if prefix is None:
            raise TurboLabError("the producer does not hold this prefix (any more)")
        first, last = int(asked.get("first", 0)), int(asked.get("end", len(prefix.blocks)))
        if not 0 <= first < last <= len(prefix.blocks):
            raise TurboLabError(
                f"blocks {first} to {last} were asked for; the prefix has {len(prefix.blocks)}"
            )
        line.send({"kind": "geometry", **prefix.geometry.describe()})
        for block in range(first, last):
            for layer in range(len(prefix.geometry.layers)):
                frame = block_frame(prefix, block=block, layer=layer, wire=str(asked.get("wire")))
                line.send(frame.header, frame.payload)
        line.send({"kind": "end", "blocks": last - first, "payload_bytes": line.payload_bytes})
        return last - first


def block_frame(prefix: Prefix, *, block: int, layer: int, wire: str) -> Frame:
    """One block of one layer with its header."""
    geometry = prefix.geometry
    payload = encode(prefix.blocks[block][layer], dtype=geometry.dtype, wire=wire)
    header = {
        "kind": "block", "prefix": prefix.key, "block": block, "layer": geometry.layers[layer],
        "dtype": geometry.dtype, "shape": list(geometry.shape), "wire": wire,
    }  # fmt: skip
    return Frame(header, payload)  # type: ignore[arg-type]
