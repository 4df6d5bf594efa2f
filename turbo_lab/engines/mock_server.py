"""A scripted OpenAI-compatible SSE server with known timings, for calibration and tests.

In a thread with its own loop (``with MockServer(script) as server``), or as a process of its own:
``python -m turbo_lab.engines.mock_server --port P --script FILE``. It notes when each piece left,
on ``time.perf_counter``; on Linux that clock is common to all processes of a machine.

Paths: ``/v1/chat/completions``, ``/v1/completions``, ``/v1/models``, ``/health``, ``/metrics``;
``GET /mock/log`` gives the send times, ``POST /mock/script`` a new script, ``POST /mock/reset``
forgets the log and begins the script anew.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from turbo_lab.core import precise_loop
from turbo_lab.core.errors import EngineError, TurboLabError, UsageError
from turbo_lab.engines.base import require_free_port
from turbo_lab.engines.mock_app import LogEntry, MockApp, serve
from turbo_lab.engines.mock_script import Script

READY_LINE = "mock server ready on http://127.0.0.1:"


class MockServer:
    """The mock in a thread of this process. Use as a context manager or start/stop."""

    def __init__(self, script: Script | None = None, *, port: int | None = None) -> None:
        self.script = script or Script()
        self._asked_port = port
        self._port: int | None = None
        self._app: MockApp | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """Root of its address. Raises EngineError before ``start``."""
        if self._port is None:
            raise EngineError("the mock server is not running; call start() first")
        return f"http://127.0.0.1:{self._port}"

    @property
    def log(self) -> list[LogEntry]:
        """Requests seen so far, with their send times."""
        return list(self._app.log) if self._app else []

    def start(self) -> None:
        """Listen on loopback; returns when it does. Raises UsageError when the port is taken."""
        if self._thread is not None:
            return
        if self._asked_port:
            require_free_port(self._asked_port)
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        if not ready.wait(10) or self._port is None:
            self._thread = None
            raise EngineError("the mock server could not listen on 127.0.0.1")

    def _run(self, ready: threading.Event) -> None:
        async def main() -> None:
            self._loop, self._app = asyncio.get_running_loop(), MockApp(self.script)
            self._stop = asyncio.Event()
            try:
                await serve(
                    self._app,
                    port=self._asked_port or 0,
                    on_port=self._listening(ready),
                    stop=self._stop,
                )
            finally:
                ready.set()

        precise_loop.run(main)

    def _listening(self, ready: threading.Event) -> Any:
        def note(port: int) -> None:
            self._port = port
            ready.set()

        return note

    def wait_ready(self, timeout_s: float = 10.0) -> float:
        """Ready as soon as ``start`` has returned: 0 seconds."""
        return 0.0

    def effective_config(self) -> dict[str, Any]:
        """The script."""
        return self.script.to_dict()

    def metrics(self) -> dict[str, float]:
        """Its counters."""
        return self._app.counters() if self._app else {}

    def stop(self) -> None:
        """Close every connection and end the thread. Safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        thread.join(timeout=10)
        self._port = None

    def __enter__(self) -> MockServer:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()


def load_script(path: Path | None) -> Script:
    """The script in a JSON file, or the default. Raises UsageError naming file and fault."""
    if path is None:
        return Script()
    try:
        return Script.from_dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"cannot read the script {path}: {error}") from error


async def _serve_process(script: Script, port: int, *, with_parent: bool) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if with_parent:  # The pipe closes when the parent is gone, however it ended.
        loop.add_reader(sys.stdin.fileno(), stop.set)

    def announce(actual: int) -> None:
        print(f"{READY_LINE}{actual}", flush=True)

    await serve(MockApp(script), port=port, on_port=announce, stop=stop)


def _lift_open_files() -> None:
    """As many connections as the system allows."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(argv: list[str] | None = None) -> int:
    """Command line; prints one line with the address when it listens."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--script", type=Path, default=None, help="JSON file")
    parser.add_argument("--with-parent", action="store_true", help="end when stdin closes")
    given = parser.parse_args(argv)
    try:
        if given.port:
            require_free_port(given.port)
        script = load_script(given.script)
        _lift_open_files()
        precise_loop.run(lambda: _serve_process(script, given.port, with_parent=given.with_parent))
    except TurboLabError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
