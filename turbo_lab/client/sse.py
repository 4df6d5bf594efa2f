"""Server-sent events: bytes in, data payloads out. Splits may fall anywhere, inside UTF-8 too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from turbo_lab.core.errors import EngineError

MAX_EVENT_BYTES = 16 * 2**20
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class SseParser:
    """Incremental parser of one ``text/event-stream`` body.

    Follows the event-stream grammar of the HTML standard: lines end in LF, CRLF or CR; one space
    after the colon is dropped; lines that begin with a colon are comments; a blank line ends an
    event. Works on bytes, so a chunk border inside a UTF-8 character does no harm.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._at_start = True
        self._event = b""

    def feed(self, block: bytes) -> Iterable[tuple[bytes, bytes]]:
        """``(event name, data)`` of every event that this block completes.

        Raises EngineError when one event grows beyond 16 MiB.
        """
        if self._at_start and block.startswith(b"d"):
            self._at_start = bool(self._rest)  # No byte order mark begins like that.
        idle = not (self._rest or self._data or self._event or self._at_start)
        if idle and block.endswith(b"\n\n") and b"\r" not in block:
            if block.startswith(b"data: ") and block.find(b"\n") == len(block) - 2:
                return ((b"", block[6:-2]),)
            return self._feed_whole(block)
        return self._feed_any(block)

    def _feed_whole(self, block: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Whole events, as nearly every server sends them: no search for line ends."""
        for piece in block[:-2].split(b"\n\n"):
            if piece.startswith(b"data: ") and b"\n" not in piece:
                yield b"", piece[6:]
            else:
                yield from self._feed_any(piece + b"\n\n")

    def _feed_any(self, block: bytes) -> Iterator[tuple[bytes, bytes]]:
        buffer = self._rest + block
        if self._at_start and len(buffer) >= len(_BOM):
            buffer = buffer.removeprefix(_BOM)
            self._at_start = False
        start = 0
        for match in _LINE_END.finditer(buffer):
            if match.group() == b"\r" and match.end() == len(buffer):
                break  # A CR at the border may be half of a CRLF: wait for the next byte.
            line, start = buffer[start : match.start()], match.end()
            if (event := self._take(line)) is not None:
                yield event
        self._rest = buffer[start:]
        if len(self._rest) + sum(map(len, self._data)) > MAX_EVENT_BYTES:
            raise EngineError(f"one event is larger than {MAX_EVENT_BYTES >> 20} MiB")

    def close(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the event that the end of the stream leaves without its blank line, if whole."""
        rest, self._rest = self._rest.removesuffix(b"\r"), b""
        for line in (rest, b""):
            if (event := self._take(line)) is not None:
                yield event

    def _take(self, line: bytes) -> tuple[bytes, bytes] | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value
        return None

    def _dispatch(self) -> tuple[bytes, bytes] | None:
        data, name = self._data, self._event
        self._data, self._event = [], b""
        return (name, b"\n".join(data)) if data else None
