"""The mock server as a process of its own, so that it shares no interpreter with the client."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import EngineError
from turbo_lab.engines.base import http_get
from turbo_lab.engines.mock_script import Script
from turbo_lab.engines.mock_server import READY_LINE


class MockProcess:
    """Start, ask and stop the mock in another process. Use as a context manager.

    It ends with this process however that ends: it watches a pipe that only we hold.
    """

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or Script()
        self._process: subprocess.Popen[str] | None = None
        self._url: str | None = None

    @property
    def base_url(self) -> str:
        """Root of its address. Raises EngineError before ``start``."""
        if self._url is None:
            raise EngineError("the mock server is not running; call start() first")
        return self._url

    def start(self) -> None:
        """Start it and wait until it listens. Raises EngineError with what it said instead."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "script.json"
            path.write_text(json.dumps(self.script.to_dict()))
            command = [sys.executable, "-m", "turbo_lab.engines.mock_server", "--with-parent"]
            self._process = subprocess.Popen(
                [*command, "--script", str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            line = self._process.stdout.readline()  # type: ignore[union-attr]
        if not line.startswith(READY_LINE):
            rest = line + self._process.communicate(timeout=10)[0]
            raise EngineError(f"the mock server did not start: {rest.strip()}")
        self._url = line.split()[-1]

    def wait_ready(self, timeout_s: float = 10.0) -> float:
        """Ready as soon as ``start`` has returned: 0 seconds."""
        return 0.0

    def effective_config(self) -> dict[str, Any]:
        """The script."""
        return self.script.to_dict()

    def metrics(self) -> dict[str, float]:
        """Its counters."""
        rows = http_get(self.base_url, "/metrics")[1].decode().splitlines()
        return {name: float(value) for name, value in (row.rsplit(" ", 1) for row in rows)}

    def log(self) -> dict[str, dict[str, Any]]:
        """What it did, by request id: ``received_s``, ``sends`` and the rest of ``LogEntry``."""
        rows = json.loads(http_get(self.base_url, "/mock/log", timeout_s=60)[1])
        return {row["request_id"]: row for row in rows}

    def stop(self) -> None:
        """End it. Safe to call twice."""
        process, self._process, self._url = self._process, None, None
        if process is None:
            return
        process.terminate()
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    def __enter__(self) -> MockProcess:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()
