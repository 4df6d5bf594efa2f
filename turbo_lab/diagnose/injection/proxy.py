"""A TCP proxy on loopback that passes everything on, or breaks it in a chosen way."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Literal, Self, get_args
from urllib.parse import urlsplit

from turbo_lab.core.errors import EngineError, UsageError, did_you_mean

Mode = Literal["pass", "refuse", "stall", "reset"]
LOCAL = ("127.0.0.1", "localhost")
BLOCK_BYTES = 64 * 1024
RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, zero seconds: closing sends RST instead of FIN


class FaultyProxy:
    """Stands between a client and a server of this machine. Use it as a context manager.

    Args:
        target: root of the server, ``http://127.0.0.1:PORT``; other hosts are refused.
        mode: ``pass`` forwards all; ``refuse`` holds the port and listens not, so that connections
            are refused; ``stall`` goes silent after ``after_bytes`` of each answer, ``reset`` cuts
            the connection there.
    """

    def __init__(self, target: str, *, mode: Mode = "pass", after_bytes: int = 0) -> None:
        if mode not in get_args(Mode):
            raise UsageError(f"mode is {mode!r}.{did_you_mean(mode, list(get_args(Mode)))}")
        parts = urlsplit(target)
        if parts.hostname not in LOCAL or not parts.port:
            raise UsageError(f"target is {target!r}; allowed: http://127.0.0.1:PORT")
        self.host, self.target_port, self.mode = parts.hostname, parts.port, mode
        self.after_bytes, self.connections = after_bytes, 0
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None

    @property
    def base_url(self) -> str:
        """Address for the client. Raises EngineError before the start."""
        if self._socket is None:
            raise EngineError("the proxy is not running; use it as a context manager")
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        """Take a free port and begin."""
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        if self.mode == "refuse":
            return self
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        if not ready.wait(10):
            raise EngineError("the proxy could not listen on 127.0.0.1")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the port and every connection."""
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join(10)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _run(self, ready: threading.Event) -> None:
        async def main() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            server = await asyncio.start_server(self._serve, sock=self._socket)
            ready.set()
            await self._stop.wait()
            server.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        asyncio.run(main())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: both directions at once, until either side ends."""
        self.connections += 1
        with contextlib.suppress(OSError, asyncio.CancelledError):
            up_reader, up_writer = await asyncio.open_connection(self.host, self.target_port)
            there = asyncio.create_task(_pump(reader, up_writer))
            back = asyncio.create_task(self._answer(up_reader, writer))
            try:
                await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (there, back):
                    task.cancel()
                up_writer.close()
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward an answer; after ``after_bytes`` do what the mode says."""
        if self.mode == "pass":
            await _pump(reader, writer)
            return
        left = self.after_bytes
        while left > 0 and (block := await reader.read(min(left, BLOCK_BYTES))):
            writer.write(block)
            await writer.drain()
            left -= len(block)
        if self.mode == "stall" and left <= 0:
            await asyncio.Event().wait()  # until the client leaves
        raw = writer.get_extra_info("socket")
        if self.mode == "reset" and raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while block := await reader.read(BLOCK_BYTES):
            writer.write(block)
            await writer.drain()
