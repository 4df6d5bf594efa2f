"""One HTTP/1.1 response out of bytes: status, headers, body blocks as they arrive. No sockets.

Follows RFC 9112: bodies end by ``Transfer-Encoding: chunked``, by ``Content-Length`` or with the
connection; interim responses (1xx) are skipped. Blocks are handed on as soon as their bytes are
there, also in the middle of an HTTP chunk, so that a time stamp belongs to what had arrived.
"""

from __future__ import annotations

from collections.abc import Callable

from turbo_lab.core.errors import EngineError

MAX_HEAD_BYTES = 64 * 1024
MAX_SIZE_LINE_BYTES = 4096
_CRLF = b"\r\n"


class HttpReply:
    """Incremental reader of one response.

    Attributes:
        status: status code, None before the head is there.
        reason: the server's words behind the code.
        headers: lower-case names; of repeated headers the last.
        done: the response is complete.
        reusable: another request may follow on this connection (once ``done``).
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.reason = ""
        self.headers: dict[str, str] = {}
        self.done = False
        self.reusable = False
        self._rest = b""
        self._left = 0
        self._step: Callable[[bytes], list[bytes]] = self._head

    def feed(self, data: bytes) -> list[bytes]:
        """Body blocks in these bytes. Raises EngineError for what is not HTTP/1.1."""
        return self._step(data)

    def eof(self) -> None:
        """The server closed. Raises EngineError when that cuts the response short."""
        if self.done:
            return
        if self.status is None:
            raise EngineError("the server closed without an answer")
        if self._step != self._until_close:
            raise EngineError("the server closed in the middle of the reply")
        self.done = True

    @property
    def content_type(self) -> str:
        """Without parameters; empty when not given."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def _head(self, data: bytes) -> list[bytes]:
        self._rest += data
        head, found, rest = self._rest.partition(b"\r\n\r\n")
        if not found or len(head) > MAX_HEAD_BYTES:
            if not b"HTTP/1.".startswith(self._rest[:7]) or len(self._rest) > MAX_HEAD_BYTES:
                raise EngineError(f"the answer is not HTTP/1.1: {self._rest[:60]!r}")
            return []
        self._rest = b""
        status, version = self._take_head(head)
        if 100 <= status < 200:
            self.headers = {}
            return self._head(rest) if rest else []
        self.status = status
        wish = self.headers.get("connection", "").lower()
        self.reusable = "close" not in wish and (version != b"HTTP/1.0" or "keep-alive" in wish)
        self._choose_body()
        if self.done:
            return self._after_end(rest)
        return self._step(rest) if rest else []

    def _take_head(self, head: bytes) -> tuple[int, bytes]:
        first, *lines = head.split(_CRLF)
        version, _, after = first.partition(b" ")
        code, _, words = after.partition(b" ")
        if not version.startswith(b"HTTP/1.") or not (len(code) == 3 and code.isdigit()):
            raise EngineError(f"the answer is not HTTP/1.1: {first[:60]!r}")
        self.reason = words.decode("latin-1").strip()
        for line in lines:
            name, _, value = line.decode("latin-1").partition(":")
            self.headers[name.strip().lower()] = value.strip()
        return int(code), version

    def _choose_body(self) -> None:
        if self.status in (204, 304):
            self.done = True
        elif "chunked" in self.headers.get("transfer-encoding", "").lower():
            self._step = self._chunked
        elif (length := self.headers.get("content-length")) is not None:
            if not (length.isascii() and length.isdigit()):
                raise EngineError(f"Content-Length is {length[:40]!r}")
            self._left, self._step = int(length), self._counted
            self.done = self._left == 0
        else:
            self._step, self.reusable = self._until_close, False

    def _until_close(self, data: bytes) -> list[bytes]:
        return [data]

    def _counted(self, data: bytes) -> list[bytes]:
        body, extra = data[: self._left], data[self._left :]
        self._left -= len(body)
        self.done = self._left == 0
        return [body, *self._after_end(extra)]

    def _chunked(self, data: bytes) -> list[bytes]:
        if self._rest:
            data, self._rest = self._rest + data, b""
        elif not self._left:  # One whole chunk, as most servers write an event.
            line = data.find(_CRLF)
            if line > 0 and (size := _chunk_size(data[:line])) and line + size + 4 == len(data):
                return [data[line + 2 : -2]]
        out, at, end = [], 0, len(data)
        while at < end:
            if not self._left:
                line = data.find(_CRLF, at)
                if line < 0:
                    self._keep_size_line(data[at:])
                    break
                size, at = _chunk_size(data[at:line]), line + 2
                if not size:
                    self._step = self._trailers
                    self._trailers(data[at:])
                    break
                self._left = size + 2  # The chunk and the CRLF behind it.
            taken = min(end - at, self._left)
            if (body := min(taken, self._left - 2)) > 0:
                out.append(data[at : at + body])
            at += taken
            self._left -= taken
        return out

    def _keep_size_line(self, line: bytes) -> None:
        if len(line) > MAX_SIZE_LINE_BYTES:
            raise EngineError(f"an HTTP chunk begins with {line[:40]!r}")
        self._rest = line

    def _trailers(self, data: bytes) -> list[bytes]:
        self._rest += data
        if self._rest.startswith(_CRLF):
            extra = self._rest[2:]
        else:
            _, found, extra = self._rest.partition(b"\r\n\r\n")
            if not found:
                if len(self._rest) > MAX_HEAD_BYTES:
                    raise EngineError("the lines behind the last HTTP chunk have no end")
                return []
        self._rest, self.done = b"", True
        return self._after_end(extra)

    def _after_end(self, extra: bytes) -> list[bytes]:
        """Bytes that nobody asked for: this connection is not used again."""
        if extra:
            self.reusable = False
        return []


def _chunk_size(line: bytes) -> int:
    try:
        number = line if line.isalnum() else line.partition(b";")[0].strip()
        if number.isalnum():
            return int(number, 16)
    except ValueError:
        pass
    raise EngineError(f"an HTTP chunk begins with {line[:40]!r}")
