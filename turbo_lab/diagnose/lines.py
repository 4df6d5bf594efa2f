"""Lines of a log, read in blocks with constant memory, whatever the file holds.

Logs come plain, from Docker Compose (``vllm-1  | ...``), Docker's JSON files, Kubernetes
(``<time> stdout F ...``, ``[pod/name/container] ...``), journald, Ray (``(RayWorkerWrapper
pid=7, ip=...) ...``) and from several vLLM processes at once (``(EngineCore pid=7) ...``).
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

BLOCK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 1 << 14  # the rest of a longer line (binary junk, a dumped prompt) is skipped
EVIDENCE_CHARACTERS = 300

_ANSI = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_PREFIXES = tuple(
    re.compile(text)
    for text in (
        rb"^\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ",  # CRI
        rb"^\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) ",  # --timestamps
        rb"^\[pod/[^\]]+\] ",
        rb"^[\w.-]+\s*\| ",  # compose
        rb"^[A-Z][a-z]{2} [ \d]\d [\d:]{8} \S+ [\w.-]+\[\d+\]: ",  # journald
    )
)
_PROCESS = re.compile(
    rb"^\((?P<process>[\w.-]+)(?:[ ,]*(?:rank=\d+ )?)pid=(?P<pid>\d+)[^)]*\)"
    rb"(?: \[repeated [^\]]*\])? ?"
)
_HEADER = re.compile(
    rb"^(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\s*:?\s+"
    rb"(?:(?P<time>\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? )?"
    rb"(?:\[?(?P<file>[\w/.]+\.py):(?P<number>\d+)\] ?)?"
)


@dataclass(frozen=True)
class LogLine:
    """One line without the wrapping of whoever carried it."""

    process: str | None
    level: str | None
    time: str | None
    file: str | None
    message: str


def read_blocks(stream: BinaryIO) -> Iterator[bytes]:
    """The log in blocks of whole lines; memory stays at a few blocks.

    A gzip file is unpacked, UTF-16 (what a Windows shell redirects) is turned into UTF-8. A line
    longer than LONGEST_LINE_BYTES is cut there. Only the last block may end without a line end.
    """
    rest, skipping = b"", False
    for block in _blocks(stream):
        cut = block.rfind(b"\n") + 1
        if cut:
            head = block[block.find(b"\n") + 1 : cut] if skipping else rest + block[:cut]
            rest, skipping = block[cut:], False
            if head:
                yield head
        elif not skipping:
            rest += block
        if len(rest) > LONGEST_LINE_BYTES:
            yield rest[:LONGEST_LINE_BYTES] + b"\n"
            rest, skipping = b"", True
    if rest:
        yield rest


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    head = stream.read(BLOCK_BYTES)
    if head[:2] == b"\x1f\x8b":
        yield from _unpacked(stream, head)
        return
    wide = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(head[:2])
    while head:
        yield head.decode(wide, "replace").encode() if wide else head
        head = stream.read(BLOCK_BYTES)


def _unpacked(stream: BinaryIO, head: bytes) -> Iterator[bytes]:
    """Blocks of a gzip file; one that ends too early gives what there is, a false one itself."""
    good = False
    with gzip.GzipFile(fileobj=cast("BinaryIO", _Joined(head, stream))) as file:
        while True:
            try:
                block = file.read(BLOCK_BYTES)
            except (EOFError, OSError, zlib.error):
                break
            if not block:
                return
            good = True
            yield block
    while head and not good:
        yield head
        head = stream.read(BLOCK_BYTES)


class _Joined:
    """A stream whose first bytes were read already."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self.head, self.rest = head, rest

    def read(self, size: int = -1) -> bytes:
        """Bytes of the head first, then of the stream."""
        if self.head:
            out, self.head = (self.head, b"") if size < 0 else (self.head[:size], self.head[size:])
            return out
        return self.rest.read(size)


def unwrapped(line: bytes) -> bytes:
    """The line as the server wrote it: no colours, no container's or journal's prefix."""
    if b"\x1b" in line:
        line = _ANSI.sub(b"", line)
    line = line.rstrip(b"\r")
    if line[:7] == b'{"log":':
        line = _docker_json(line)
    for prefix in _PREFIXES:
        line = prefix.sub(b"", line, count=1)
    return line


def _docker_json(line: bytes) -> bytes:
    try:
        return str(json.loads(line)["log"]).rstrip("\n").encode()
    except (ValueError, KeyError, TypeError):
        return line


def parse_line(line: bytes) -> LogLine:
    """Split a line into process, level, time, file and message. Never raises."""
    text = unwrapped(line)
    process = _PROCESS.match(text)
    if process:
        text = text[process.end() :]
    header = _HEADER.match(text)
    if header:
        text = text[header.end() :]

    def part(match: re.Match[bytes] | None, name: str) -> str | None:
        value = match.group(name) if match else None
        return value.decode("utf-8", "replace") if value else None

    name = f"{part(process, 'process')} {part(process, 'pid')}" if process else None
    return LogLine(
        process=name,
        level=part(header, "level"),
        time=part(header, "time"),
        file=part(header, "file"),
        message=text.decode("utf-8", "replace").strip(),
    )
