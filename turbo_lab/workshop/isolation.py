"""What can be kept from a submission on this machine, found out by trying."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from turbo_lab.core.errors import UsageError
from turbo_lab.workshop import cage
from turbo_lab.workshop.limits import Limits

PROBE_TIMEOUT_S = 30.0
_BASE = ("--user", "--map-root-user", "--net", "--mount")
_PROCESSES = ("--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc")


@dataclass(frozen=True)
class Isolation:
    """How a submission is started, and what that does not hold back.

    Attributes:
        prefix: Command that makes the namespaces; empty where none can be made.
        network: Why the network is not limited; None when the submission has none.
        files: Why other files can be written; None when all but its own folder is read-only.
        processes: Why a process could escape the end of its submission; None when it cannot.
        user: Why the submission's user may do more than a student; None for an ordinary one.
    """

    prefix: tuple[str, ...] = ()
    network: str | None = None
    files: str | None = None
    processes: str | None = None
    user: str | None = None

    def lines(self) -> list[str]:
        """One sentence for each of network, files, processes and user."""
        return [
            f"network not limited: {self.network}" if self.network else "network: none",
            f"files not read-only: {self.files}"
            if self.files
            else "files: read-only, except one folder of its own",
            f"processes not contained: {self.processes}"
            if self.processes
            else "processes: in a namespace of their own",
            f"user not limited: {self.user}" if self.user else "user: an ordinary one",
        ]


def require_linux() -> None:
    """Raise UsageError on systems without Linux's limits."""
    if sys.platform != "linux":
        raise UsageError(
            "Grading needs Linux: its limits of memory, processes and network exist nowhere else. "
            "Run it in WSL2 or in a Linux container."
        )


def probe() -> Isolation:
    """The strongest isolation that works here. Tries it; changes nothing outside."""
    require_linux()
    unshare = shutil.which("unshare")
    if unshare is None:
        return _none("the program unshare (util-linux) is not installed")
    reason = _try((unshare, *_BASE, *_PROCESSES))
    if reason is None:
        return Isolation(prefix=(unshare, *_BASE, *_PROCESSES), user=trouble_with_user())
    lesser = _try((unshare, *_BASE))
    if lesser is None:
        return Isolation((unshare, *_BASE), processes=reason, user=trouble_with_user())
    return _none(lesser)


def trouble_with_user() -> str | None:
    """Why the present user should not grade; None for an ordinary one."""
    if os.geteuid():
        return None
    return (
        "root grades. The kernel counts neither processes nor threads of root, and what is not "
        "read-only is open to it. Grade as an ordinary user"
    )


def _none(reason: str) -> Isolation:
    return Isolation(network=reason, files=reason, processes=reason, user=trouble_with_user())


def _try(prefix: tuple[str, ...]) -> str | None:
    """None when a cage can be built behind ``prefix``, else the reason."""
    with tempfile.TemporaryDirectory(prefix="turbo-lab-probe-") as folder:
        plan = {
            "work": folder,
            "hide": [],
            "mounts": True,
            "probe": True,
            "limits": Limits().to_json(),
        }
        try:
            done = subprocess.run(
                [*prefix, sys.executable, "-I", str(Path(cage.__file__)), json.dumps(plan)],
                capture_output=True,
                text=True,
                timeout=PROBE_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)[:200]
    if done.returncode == 0:
        return None
    told = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return told[-1][:200]
