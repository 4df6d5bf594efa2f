"""Run a command as a user without rights, also where the tests themselves run as root.

Root's own folder (with its Python) is often closed to others. So the command gets a mount
namespace in which a closed folder on the way is empty but for what the command needs. Nothing
changes outside.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from turbo_lab.core.host import repository_root

# Nobody's number, another in each run: the kernel counts a user's processes over all runs.
STRANGER = 20_000 + os.getpid() % 40_000


def needed_folders() -> list[Path]:
    """The interpreter's folders and the checkout."""
    found = {Path(p).resolve() for p in (sys.base_prefix, sys.prefix, repository_root())}
    return sorted(p for p in found if not any(p != q and p.is_relative_to(q) for q in found))


def closed_folder(path: Path) -> Path | None:
    """The first folder on the way to ``path`` that others may not enter."""
    for folder in reversed(path.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            return folder
    return None


def opening_script(scratch: Path) -> str:
    """Shell commands that open the way to ``needed_folders``; for a mount namespace of its own."""
    closed: dict[Path, list[Path]] = {}
    for path in needed_folders():
        if (folder := closed_folder(path)) is not None:
            closed.setdefault(folder, []).append(path)
    lines = ["set -e"]
    for folder, inside in closed.items():
        kept = {path: scratch / f"kept{n}" for n, path in enumerate(inside)}
        for path, place in kept.items():
            lines += [f"mkdir -p {shlex.quote(str(place))}"]
            lines += [shlex.join(["mount", "--rbind", str(path), str(place)])]
        lines += [shlex.join(["mount", "-t", "tmpfs", "-o", "mode=755", "none", str(folder)])]
        for path, place in kept.items():
            lines += [shlex.join(["mkdir", "-p", str(path)])]
            lines += [shlex.join(["mount", "--move", str(place), str(path)])]
    return "\n".join(lines)


def as_ordinary_user(command: Sequence[str], *, scratch: Path) -> list[str]:
    """``command`` for a user without rights; itself where this user has none.

    ``scratch`` is an empty folder; it belongs to that user afterwards.
    """
    if os.geteuid():
        return list(command)
    script = opening_script(scratch)
    os.chown(scratch, STRANGER, STRANGER)
    user = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
    return ["unshare", "--mount", "sh", "-c", f"umask 022\n{script}\nexec \"$@\"", "sh", *user,
            *command]  # fmt: skip


def why_not(scratch: Path) -> str | None:
    """Why no command can be run as an ordinary user here; None when it can."""
    if missing := [name for name in ("unshare", "setpriv") if not shutil.which(name)]:
        return f"{missing[0]} (util-linux) is not installed"
    code = (
        "import os, turbo_lab.workshop.grade\n"
        "open(os.devnull, 'r+b').close()  # closed to all but root where root put a file there\n"
        "raise SystemExit(not os.geteuid())"
    )
    command = as_ordinary_user([sys.executable, "-c", code], scratch=scratch)
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    return None if done.returncode == 0 else f"no ordinary user here: {done.stderr.strip()[-300:]}"
