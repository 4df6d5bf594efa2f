"""What every server class shares: its address, its log, and that it never stays behind."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from turbo_lab.engines.base import GuardedProcess, http_get


class ManagedServer:
    """A server over a guarded process. Use it as a context manager, or call ``stop``.

    Subclasses set ``what`` (its name in messages), ``process`` and ``port``.
    """

    what: str
    process: GuardedProcess
    port: int
    load_s: float | None = None

    @property
    def base_url(self) -> str:
        """Root of the server's address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """The server's log file, kept after its end."""
        return self.process.log

    def start(self) -> Self:
        """Start the process; returns at once. Raises EngineError."""
        self.process.start()
        return self

    def is_ready(self) -> bool:
        """Whether ``/health`` answers 200 now."""
        try:
            return http_get(self.base_url, "/health", timeout_s=5.0)[0] == 200
        except OSError:
            return False

    def wait_ready(self, timeout_s: float = 600.0) -> float:
        """Wait until ``/health`` answers 200. Returns (and keeps) the load time in seconds.

        Raises EngineError with the log's last lines when the server dies or is too slow.
        """
        self.load_s = self.process.wait_for(self.is_ready, timeout_s=timeout_s, what=self.what)
        return self.load_s

    def alive(self) -> bool:
        """True while the server process runs."""
        return self.process.alive()

    def stop(self) -> None:
        """End the server's process group. Safe to call twice."""
        self.process.stop()

    def __enter__(self) -> Self:
        """Start and wait for readiness."""
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, whatever happened."""
        self.stop()
