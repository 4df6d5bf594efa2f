"""The package as a submission sees it: a copy without the exercises' expected results."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from turbo_lab.core import host
from turbo_lab.core.errors import TurboLabError

PACKAGE = "turbo_lab"
WITHOUT = ("course/checks", "course/solutions")
# Parts of a checkout in which answers can be read.
TELLING = (PACKAGE, "notebooks", "tests", ".git", "runs")


def build_stage(folder: Path, *, root: Path | None = None) -> Path:
    """Copy the package into ``folder``, without checks and solutions; data is linked."""
    root = root or host.repository_root()
    shutil.copytree(root / PACKAGE, folder / PACKAGE, ignore=_telling(root / PACKAGE))
    (folder / "data").symlink_to(root / "data", target_is_directory=True)
    (folder / "notebooks").mkdir()
    shutil.copy2(root / "notebooks" / "course.toml", folder / "notebooks" / "course.toml")
    return folder


def _telling(package: Path) -> Callable[[str, list[str]], set[str]]:
    """A filter for copytree: caches, and everything in WITHOUT except the folders themselves."""
    folders = {str(package / part) for part in WITHOUT}

    def ignored(folder: str, names: list[str]) -> set[str]:
        if folder in folders:
            return set(names) - {"__init__.py"}
        return {name for name in names if name == "__pycache__"}

    return ignored


def hidden_folders(root: Path | None = None) -> tuple[Path, ...]:
    """Folders of the checkout that a submission must not read."""
    root = root or host.repository_root()
    return tuple(root / name for name in TELLING if (root / name).is_dir())


def fingerprint(folder: Path) -> str:
    """Changes when a file below was written, added or removed. Reads no file's content."""
    found = hashlib.sha256()
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            path = Path(where) / name
            facts = path.lstat()
            found.update(f"{path}\0{facts.st_size}\0{facts.st_ctime_ns}\n".encode())
    return found.hexdigest()


class Guard:
    """The grader's own files and the stage, looked at again after every submission."""

    def __init__(self, stage: Path, *, root: Path | None = None) -> None:
        self.own, self.stage = (root or host.repository_root()) / PACKAGE, stage
        self._seen = {folder: fingerprint(folder) for folder in (self.own, stage)}

    def check(self, student: str) -> None:
        """Raise TurboLabError when files of the grader changed while ``student``'s work ran."""
        changed = [f for f, seen in self._seen.items() if fingerprint(f) != seen]
        if changed:
            raise TurboLabError(
                f"Files in {changed[0]} changed while the submission of {student!r} ran. Nothing "
                "graded from here on could be trusted, so grading stops; earlier results are kept. "
                "Look at the submission, restore the files (git status, git checkout), and grade "
                "where files can be made read-only (Linux with user namespaces)."
            )
