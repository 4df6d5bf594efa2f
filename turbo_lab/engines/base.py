"""What every engine offers, and the process handling that all of them share."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.engines import guardian
from turbo_lab.records.redact import redact

LOG_TAIL_LINES = 20


class Engine(Protocol):
    """A server that can be started, asked and stopped. It always ends its own process group."""

    @property
    def base_url(self) -> str:
        """Root of the server's address, e.g. ``http://127.0.0.1:8123``."""

    def start(self) -> None:
        """Start the process; returns at once. Raises EngineError."""

    def wait_ready(self, timeout_s: float) -> float:
        """Wait for readiness; returns the seconds since the start. Raises EngineError."""

    def effective_config(self) -> dict[str, Any]:
        """The configuration the server really runs with, as it reports it."""

    def metrics(self) -> dict[str, float]:
        """The server's counters and gauges now; ``name{labels}`` to value."""

    def stop(self) -> None:
        """End the process group. Safe to call twice."""


def free_port() -> int:
    """A TCP port on loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def require_free_port(port: int) -> int:
    """Return ``port`` when nothing listens there; raise UsageError otherwise."""
    if not 1 <= port <= 65535:
        raise UsageError(f"port is {port}; allowed: 1 to 65535, or none for a free one")
    if reason := port_trouble(port):
        raise UsageError(
            f"port {port} is taken ({reason}). Leave the port out to get a free one, or name "
            "another."
        )
    return port


def port_trouble(port: int) -> str | None:
    """Why no server of ours could listen at this port of loopback; None where one could."""
    with socket.socket() as probe:
        if sys.platform != "win32":  # as servers do; there it would mean sharing the port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.strerror or str(error)
    return None


def http_get(
    url: str,
    path: str,
    *,
    timeout_s: float = 10.0,
    api_key: str | None = None,
    https: bool = False,
) -> tuple[int, bytes]:
    """One GET without redirects or proxies. Raises OSError when nothing answers.

    ``api_key`` is sent as a bearer token. ``https``: addresses that begin so are allowed too; the
    certificate is verified.
    """
    scheme, _, address = url.rpartition("://")
    kinds = {"": http.client.HTTPConnection, "http": http.client.HTTPConnection}
    if https:
        kinds["https"] = http.client.HTTPSConnection
    try:
        if scheme not in kinds:
            raise http.client.InvalidURL(f"not {' or '.join(filter(None, kinds))}")
        connection = kinds[scheme](address, timeout=timeout_s)
    except http.client.InvalidURL as error:
        raise ConnectionError(f"{url} is no address ({error}); use http://HOST:PORT") from error
    try:
        connection.request("GET", path, headers=_bearer(api_key))
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"{url}{path}: {error!r}") from error
    finally:
        connection.close()


def _bearer(api_key: str | None) -> dict[str, str]:
    if api_key is None:
        return {}
    if not api_key.isprintable() or not api_key.isascii():
        raise ConnectionError("the API key holds letters that no header may hold")
    return {"Authorization": f"Bearer {api_key}"}


@dataclass
class GuardedProcess:
    """A server process under a guardian (see that module). Not started until ``start``."""

    command: list[str]
    folder: Path
    env: Mapping[str, str]
    leases: tuple[Path, ...] = ()
    grace_s: float = 0.0
    guard: subprocess.Popen | None = None
    guard_token: str | None = None  # names the guardian when another process started it
    started_s: float = 0.0

    @property
    def log(self) -> Path:
        """The server's own output, kept after its end."""
        return self.folder / "server.log"

    @property
    def status(self) -> Path:
        """Where the guardian writes how the server fares."""
        return self.folder / "status.json"

    def start(self) -> None:
        """Start guardian and server. Raises EngineError when the folder cannot be written."""
        own = self.folder / "leases"
        try:
            guardian.add_lease(own)
            self.log.touch(mode=0o600)  # prompts may come to stand there
            self.log.write_text(f"$ {' '.join(redact(self.command))}\n")  # a flag may be a key
        except OSError as error:
            raise EngineError(
                f"cannot write to {self.folder}: {error.strerror or error}. Free some "
                "space or set TURBO_LAB_CACHE to another folder."
            ) from error
        command = [sys.executable, "-m", "turbo_lab.engines.guardian"]
        for lease in (own, *self.leases):
            command += ["--leases", str(lease)]
        command += [
            "--grace-s",
            str(self.grace_s),
            "--status",
            str(self.status),
            "--log",
            str(self.log),
            "--",
            *self.command,
        ]
        self.started_s = time.monotonic()
        self.guard = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self.env},
            start_new_session=True,
        )
        self.guard_token = guardian.process_token(self.guard.pid)

    def alive(self) -> bool:
        """True while the guardian runs, which is as long as its server does."""
        if self.guard is not None:
            return self.guard.poll() is None
        token = self.guard_token
        return token is not None and guardian.process_token(int(token.split("-")[0])) == token

    def wait_for(self, ready: Callable[[], bool], *, timeout_s: float, what: str) -> float:
        """Poll ``ready`` until true. Raises EngineError with the log's end when the server dies."""
        deadline = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(OSError):
                if ready():
                    return time.monotonic() - self.started_s
            if not self.alive():
                raise EngineError(f"{what} ended while starting.\n{self.explain()}")
            if time.monotonic() > deadline:
                self.stop()
                raise EngineError(
                    f"{what} was not ready within {timeout_s:.0f} s and was stopped."
                    f"\n{self.explain()}"
                )
            time.sleep(0.1)

    def explain(self) -> str:
        """The guardian's verdict, the log's last lines and where the log is."""
        facts: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            facts = json.loads(self.status.read_text())
        verdict = f"exit code {facts.get('returncode')}: {facts.get('reason') or 'unknown reason'}"
        return f"{verdict}\nLast lines of {self.log}:\n{self.log_tail()}"

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines of the server's log."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError as error:
            return f"(no log: {error.strerror})"
        return "\n".join("  " + line for line in text.splitlines()[-lines:])

    def stop(self, *, timeout_s: float = guardian.STOP_TIMEOUT_S + 10.0) -> None:
        """Ask the guardian to end the server's group, and wait until it has."""
        if self.guard_token is None or not self.alive():
            return
        pid = int(self.guard_token.split("-")[0])
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.alive():
            raise EngineError(
                f"the guardian {pid} did not end its server in {timeout_s:.0f} s; log: {self.log}"
            )
