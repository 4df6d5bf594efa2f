"""A small disk that one process alone sees: a tmpfs in a mount namespace of its own.

The namespace ends with its process, so that nothing is left to clean up, also after a crash. Root
may make one; others may where the kernel allows user namespaces.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from turbo_lab.core.errors import UnmeasuredError

# $0 folder, $1 bytes, $2 "full" or "empty"; then the command. dd ends with an error, as it should.
SCRIPT = (
    'mount -t tmpfs -o "size=$1" turbo-lab-small "$0" || exit 97; '
    '[ "$2" = full ] && dd if=/dev/zero of="$0/ballast" bs=4096 2>/dev/null; '
    'shift 2; exec "$@"'
)
REFUSED_CODE = 97


@functools.cache
def namespace_words() -> tuple[str, ...]:
    """Words that run a command in a mount namespace of its own.

    Raises UnmeasuredError where this system has no such thing.
    """
    tool = shutil.which("unshare")
    if tool is None:
        raise UnmeasuredError("a full disk needs Linux with unshare (package util-linux)")
    words = (
        (tool, "--mount") if os.geteuid() == 0 else (tool, "--user", "--map-root-user", "--mount")
    )
    probe = [*words, "sh", "-c", 'mount -t tmpfs -o size=4096 probe "$0"', "/tmp"]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise UnmeasuredError(
            f"this system lets us mount no small disk of our own: {done.stderr.strip()[:200]}"
        )
    return words


def small_disk_command(
    command: Sequence[str], *, folder: Path, size_bytes: int, full: bool
) -> list[str]:
    """``command`` as it runs with a disk of ``size_bytes`` at ``folder``; ``full``: already filled.

    The folder must exist. Raises UnmeasuredError where no namespace can be made.
    """
    state = "full" if full else "empty"
    return [*namespace_words(), "sh", "-c", SCRIPT, str(folder), str(size_bytes), state, *command]
