"""nginx as a program: found, asked about a configuration, and run before a server."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from pathlib import Path

from turbo_lab.core.errors import EngineError, TurboLabError, UsageError
from turbo_lab.engines.base import GuardedProcess, require_free_port
from turbo_lab.engines.managed import ManagedServer
from turbo_lab.engines.safety.proxy import ProxyPlan, nginx_config
from turbo_lab.engines.safety.row import Check, by_exposure, row

CHECK_TIMEOUT_S = 20.0
_COMMENT = re.compile(r"(?m)#.*$")


class NginxMissingError(TurboLabError):
    """nginx is not installed; the message carries the install line."""


def nginx_program() -> str | None:
    """Path of the installed nginx; on Debian it lies outside a user's PATH. None without one."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def require_nginx() -> str:
    """Path of nginx. Raises NginxMissingError with the install line."""
    if (program := nginx_program()) is None:
        raise NginxMissingError(
            "nginx is not installed here. Debian and Ubuntu: apt-get install nginx"
        )
    return program


def check_config(config: Path) -> str | None:
    """What ``nginx -t`` objects to, or None. Raises NginxMissingError without nginx."""
    return _tested(config)[0]


def _tested(config: Path) -> tuple[str | None, str]:
    """(what nginx objects to or None, the configuration with all files that it includes)."""
    folder = config.resolve().parent
    done = subprocess.run(
        [require_nginx(), "-T", "-q", "-e", "stderr", "-p", str(folder), "-c", config.name],
        capture_output=True, text=True, errors="replace", timeout=CHECK_TIMEOUT_S,
    )  # fmt: skip
    if done.returncode == 0:
        return None, done.stdout
    return done.stderr.strip() or f"exit {done.returncode}", ""


def proxy_row(config: Path | None, *, exposed: bool) -> Check:
    """Does a proxy's configuration limit the rate, and does nginx take it?

    Raises UsageError when the file cannot be read.
    """
    if config is None:
        return row("rate_limit", by_exposure(exposed), "no proxy is named (--proxy nginx.conf)")
    try:
        text = config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--proxy {config} cannot be read: {error}") from error
    checked = nginx_program() is not None
    if checked:
        objection, text = _tested(config)
        if objection:
            return row("rate_limit", "fail", f"nginx -t: {objection.splitlines()[0]}")
    text = _COMMENT.sub("", text)
    missing = [name for name in ("limit_req_zone", "limit_req") if not _has(text, name)]
    if missing:
        return row("rate_limit", "fail", f"{config.name} has no {' and no '.join(missing)}")
    if not re.search(r"\bproxy_buffering\s+off\s*;", text):
        return row("rate_limit", "warn", f"{config.name} limits, but buffers replies (streaming)")
    if not checked:
        return row("rate_limit", "unknown", f"{config.name} limits; no nginx here to check it")
    return row("rate_limit", "ok", f"{config.name} limits with limit_req, and nginx -t takes it")


def _has(text: str, directive: str) -> bool:
    return re.search(rf"(?:^|[;{{}}\s]){directive}\s+[^;]+;", text) is not None


class NginxProxy(ManagedServer):
    """A running nginx before a server on loopback; ended with the process that started it.

    Use it as a context manager. ``folder`` holds its configuration and logs.
    """

    what = "nginx"

    def __init__(self, plan: ProxyPlan, *, folder: Path) -> None:
        program = require_nginx()
        self.plan, self.port = plan, require_free_port(plan.port)
        folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "nginx.conf"
        self.config.write_text(nginx_config(plan), encoding="utf-8")
        if objection := check_config(self.config):
            raise EngineError(f"nginx refuses its configuration:\n{objection}")
        self.process = GuardedProcess(
            command=[program, "-e", "stderr", "-p", str(folder.resolve()), "-c", "nginx.conf",
                     "-g", "daemon off;"],
            folder=folder,
            env={},
        )  # fmt: skip

    @property
    def base_url(self) -> str:
        """Root of the proxy's address."""
        return f"http{'s' if self.plan.certificate else ''}://127.0.0.1:{self.port}"

    def wait_ready(self, timeout_s: float = 20.0) -> float:
        """Wait until the port takes connections; the server behind it need not be up.

        Raises EngineError with nginx's last lines when it ends or is too slow.
        """

        def listens() -> bool:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5.0):
                return True

        self.load_s = self.process.wait_for(listens, timeout_s=timeout_s, what=self.what)
        return self.load_s
