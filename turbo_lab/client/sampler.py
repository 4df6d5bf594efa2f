"""Resources beside a run, on the client's own clock, in JSON lines.

The sampler is a process of its own, so that its work never delays the client's time stamps. It
reads ``time.perf_counter``, which Linux, macOS and Windows share between processes. It ends with
its parent: its standard input closes.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from turbo_lab.core.errors import RecordError, UsageError
from turbo_lab.records.journal import Journal, read_rows

INTERVAL_S = 0.5
STOP_TIMEOUT_S = 10.0


@dataclass
class Sampler:
    """Samples until ``stop``. Use it as a context manager, or start and stop it.

    Attributes:
        path: JSON lines, one per sample; kept.
        pids: process trees to watch, by name (``{"server": ...}``); ``client`` is watched without
            its children, for these may be servers.
        metrics_url: the engine's Prometheus page; None for none.
        interval_s: seconds between samples.
    """

    path: Path
    pids: Mapping[str, int] = field(default_factory=dict)
    metrics_url: str | None = None
    interval_s: float = INTERVAL_S
    _child: subprocess.Popen[str] | None = field(default=None, repr=False)

    def start(self) -> Self:
        """Start sampling; returns when the first sample is taken. Raises UsageError."""
        if not self.interval_s >= 0.05:
            raise UsageError(f"interval_s is {self.interval_s!r}; it must be at least 0.05")
        job = {
            "path": str(self.path),
            "pids": dict(self.pids),
            "metrics_url": self.metrics_url,
            "interval_s": self.interval_s,
        }
        self._child = subprocess.Popen(
            [sys.executable, "-m", "turbo_lab.client.sampler", json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._child.stdout is not None
        self._child.stdout.readline()
        return self

    def stop(self) -> list[dict[str, Any]]:
        """End the sampler and return all its samples, also when it had died early."""
        child, self._child = self._child, None
        if child is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                child.communicate(timeout=STOP_TIMEOUT_S)
            if child.poll() is None:
                child.kill()
                child.wait()
        try:
            return read_rows(self.path)
        except RecordError:
            return []

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()


def main(arguments: list[str]) -> int:
    """The child: sample until standard input ends."""
    import select

    from turbo_lab.client.probes import Probes

    job = json.loads(arguments[0])
    probes = Probes(pids=job["pids"], metrics_url=job["metrics_url"])
    with Journal(job["path"]) as journal:
        due = time.perf_counter()
        while True:
            try:
                journal.append(probes.sample())
            except RecordError:
                return 1  # A full disk ends the sampling, not the run.
            if probes.count == 1:
                print("sampling", flush=True)  # The parent waits for this line.
            due = max(due + job["interval_s"], time.perf_counter())
            if _parent_gone(select, due - time.perf_counter()):
                journal.append(probes.sample())
                return 0


def _parent_gone(select: Any, wait_s: float) -> bool:
    """Wait; True when standard input has ended (Windows cannot select on a pipe: poll there)."""
    try:
        ready, _, _ = select.select([sys.stdin], [], [], max(0.0, wait_s))
    except (OSError, ValueError):
        time.sleep(max(0.0, wait_s))
        return False
    return bool(ready) and not sys.stdin.read(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
