"""The server's own process, when it runs on this machine: its command, settings and children."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1", "0.0.0.0"})
# Environment variables that change what an engine does. Others are private to the machine.
_TELLING = re.compile(
    r"^(VLLM|SGLANG|SGL|OMP|MKL|KMP|CUDA|NCCL|TORCH|PYTORCH|TRANSFORMERS|TOKENIZERS|TRITON|GGML|"
    r"LLAMA|TRTLLM|HF_HUB_OFFLINE|HF_HUB_ENABLE|LD_PRELOAD|MALLOC|PYTHONHASHSEED|OPENBLAS)"
)


@dataclass(frozen=True)
class LocalProcess:
    """A listening process. ``started`` is its creation time, which tells restarts apart."""

    pid: int
    command: tuple[str, ...]
    environment: dict[str, str]
    started: float


def listening_process(base_url: str) -> LocalProcess | None:
    """The process that listens at a loopback URL; None for another machine or user."""
    parts = urlsplit(base_url)
    if parts.hostname not in LOOPBACK:
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    pid = _pid_listening_on(port)
    return None if pid is None else describe_process(pid)


def _pid_listening_on(port: int) -> int | None:
    import psutil

    try:
        found = psutil.net_connections(kind="tcp")
    except (psutil.AccessDenied, PermissionError, OSError):
        return None
    pids = [c.pid for c in found if c.status == psutil.CONN_LISTEN and c.laddr.port == port]
    known = [pid for pid in pids if pid]
    return min(known) if known else None


def describe_process(pid: int) -> LocalProcess | None:
    """Command and telling environment of a process; None when it is gone or not ours to read."""
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            variables = process.environ()
            return LocalProcess(
                pid=pid,
                command=tuple(process.cmdline()),
                environment={k: v for k, v in sorted(variables.items()) if _TELLING.match(k)},
                started=process.create_time(),
            )
    except (psutil.Error, OSError):
        return None
