"""One process (with its children) inside a host: waited for, read and ended as a group."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from turbo_lab.core.errors import TurboLabError
from turbo_lab.core.processes import stop_group

LOG_TAIL_LINES = 20


class HostProcess:
    """A started process. ``deadline_s`` is on the clock of ``time.monotonic``."""

    def __init__(
        self, popen: subprocess.Popen, *, host: int, argv: list[str], log: Path, deadline_s: float
    ) -> None:
        self.popen, self.host, self.argv, self.log = popen, host, argv, log
        self.deadline_s = deadline_s
        self.timed_out = False

    @property
    def pid(self) -> int:
        """Process id, which is also the group's."""
        return self.popen.pid

    def poll(self) -> int | None:
        """Exit code (negative: signal), or None while it runs. Ends it past its deadline."""
        code = self.popen.poll()
        if code is None and time.monotonic() >= self.deadline_s:
            self.timed_out = True
            self.stop(grace_s=0.0)
            code = self.popen.poll()
        return code

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the end, at most ``timeout_s`` and never past the deadline; the exit code.

        Raises TurboLabError with the log's end when it does not end within ``timeout_s``.
        """
        until_s = self.deadline_s if timeout_s is None else time.monotonic() + timeout_s
        while True:
            code = self.poll()
            if code is not None:
                return code
            left_s = min(until_s, self.deadline_s) - time.monotonic()
            if left_s <= 0 and until_s < self.deadline_s:
                raise TurboLabError(f"{self.describe()} still runs after {timeout_s:g} s")
            try:
                self.popen.wait(max(left_s, 0.001))
            except subprocess.TimeoutExpired:
                continue

    def check(self, timeout_s: float | None = None) -> str:
        """``wait``, then the output. Raises TurboLabError with its end for any code but 0."""
        code = self.wait(timeout_s)
        if code != 0:
            late = " (past its deadline)" if self.timed_out else ""
            raise TurboLabError(f"{self.describe()} ended with code {code}{late}.\n{self.tail()}")
        return self.output()

    def output(self) -> str:
        """What it has written so far."""
        try:
            return self.log.read_text(errors="replace")
        except OSError as error:
            return f"(no log: {error.strerror})"

    def tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines of its output."""
        return "\n".join("  " + line for line in self.output().splitlines()[-lines:])

    def describe(self) -> str:
        """``python (process 123 in host 0)``."""
        return f"{Path(self.argv[0]).name} (process {self.pid} in host {self.host})"

    def stop(self, *, grace_s: float = 2.0) -> None:
        """End the whole group: SIGTERM, and SIGKILL after ``grace_s``. Safe to call twice."""
        stop_group(self.pid, timeout_s=grace_s)
        self.popen.wait(5.0)
