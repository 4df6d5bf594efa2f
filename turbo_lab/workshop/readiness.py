"""Is this machine ready for the workshop? Each check: what was found, and the next step."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from turbo_lab.core import host, units
from turbo_lab.core.config import resolve_dials
from turbo_lab.core.errors import TurboLabError, UsageError
from turbo_lab.engines import local_model
from turbo_lab.engines.base import port_trouble

Status = str  # "ok", "warning" or "failed"
OLDEST_PYTHON = (3, 11)
KERNEL_TIMEOUT_S = 60.0
# Wanted by mode, in bytes: README, "Hardware and systems"; the model's own need is local_model's.
FREE_DISK_BYTES = {"replay": 500 * units.MB, "live": 2 * units.GB}
MEMORY_BYTES = {"replay": 2 * units.GB, "live": 7 * units.GB}


@dataclass(frozen=True)
class Check:
    """One line of the self-check. ``next_step`` is empty when all is well."""

    name: str
    status: Status
    found: str
    next_step: str = ""


def check_machine(*, port: int = 8888, start_kernel: bool = True) -> tuple[Check, ...]:
    """All checks for the mode that this machine would choose.

    ``port`` is JupyterLab's. ``start_kernel`` starts a notebook's kernel and runs one line in it.
    """
    if not 1 <= port <= 65535:
        raise UsageError(f"port is {port}; allowed: 1 to 65535")
    try:
        mode = "live" if resolve_dials().live else "replay"
        first = Check("mode", "ok", resolve_dials().mode)
    except UsageError as error:
        mode, first = "replay", Check("mode", "failed", "none", str(error))
    return (first, *_checks(mode, port, start_kernel))


def _checks(mode: str, port: int, start_kernel: bool) -> Iterator[Check]:
    yield _python()
    yield _disk(mode)
    yield _memory(mode)
    yield _cores()
    yield _port(port)
    if mode == "live":
        yield _model()
    yield _packages()
    if start_kernel:
        yield _kernel()


def _python() -> Check:
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return Check("Python", "ok", host.python_version())
    return Check("Python", "failed", host.python_version(), "Install Python 3.11 or newer.")


def _disk(mode: str) -> Check:
    folder = host.cache_folder()
    while not folder.exists():
        folder = folder.parent
    free, wanted = shutil.disk_usage(folder).free, FREE_DISK_BYTES[mode]
    if free >= wanted:
        return Check("disk", "ok", f"{units.format_bytes(free)} free")
    step = f"Free {units.format_bytes(wanted)}, or set TURBO_LAB_CACHE to another disk."
    return Check("disk", "failed", f"{units.format_bytes(free)} free", step)


def _memory(mode: str) -> Check:
    total, wanted = host.memory_total_bytes(), MEMORY_BYTES[mode]
    if total >= wanted:
        return Check("memory", "ok", units.format_bytes(total))
    step = "Work with recorded results: turbo-lab lab --mode replay"
    return Check("memory", "warning", units.format_bytes(total), step)


def _cores() -> Check:
    cores = host.cores_granted()
    if cores >= 2:
        return Check("cores", "ok", str(cores))
    return Check("cores", "warning", str(cores), "Live runs take twice the minutes; use replay.")


def _port(port: int) -> Check:
    if reason := port_trouble(port):
        step = "JupyterLab takes the next free one; or: turbo-lab lab --port 8890"
        return Check(f"port {port}", "warning", reason, step)
    return Check(f"port {port}", "ok", "free")


def _model() -> Check:
    """The prepared model with its checksum, else the file it is made from."""
    folder = local_model.model_folder()
    try:
        if not local_model.is_prepared(folder):
            local_model.source_gguf()
            step = "The first live notebook prepares it (about 25 s): turbo-lab run 00"
            return Check("model", "warning", "not prepared yet, its source file is whole", step)
        marker = json.loads((folder / local_model.MARKER).read_text())
        if local_model.file_sha256(folder / "model.safetensors") == marker["weights_sha256"]:
            return Check("model", "ok", f"{local_model.NAME}, checksum right")
        step = f"Remove {host.short_path(folder)}; the next live notebook prepares it again."
        return Check("model", "failed", "the weights are damaged", step)
    except (TurboLabError, OSError, KeyError) as error:
        return Check("model", "failed", "not there", str(error))


def _packages() -> Check:
    wanted = ("jupyterlab", "ipykernel", "matplotlib", "pandas", "papermill")
    missing = [name for name in wanted if not host.has_module(name)]
    if not missing:
        return Check("packages", "ok", "of the light environment")
    step = "Install them: python scripts/install.py replay"
    return Check("packages", "failed", f"missing: {', '.join(missing)}", step)


def _kernel() -> Check:
    """A kernel starts, imports the package, and ends: what every notebook needs."""
    code = (
        "from jupyter_client.manager import run_kernel\n"
        "with run_kernel(kernel_name='python3') as client:\n"
        "    reply = client.execute_interactive('import turbo_lab', timeout=40)\n"
        "raise SystemExit(reply['content']['status'] != 'ok')\n"
    )
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=KERNEL_TIMEOUT_S,
            cwd=Path(host.repository_root()),
        )
    except subprocess.TimeoutExpired:
        return Check("kernel", "failed", f"no answer in {KERNEL_TIMEOUT_S:g} s", "Try again.")
    if done.returncode == 0:
        return Check("kernel", "ok", "starts and imports turbo_lab")
    told = (done.stderr.strip().splitlines() or ["no reason given"])[-1][:200]
    step = "Install it again: python scripts/install.py replay"
    return Check("kernel", "failed", told, step)
