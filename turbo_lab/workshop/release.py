"""Student copies: the course without solutions, with checks, ready for ``make lab``."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.errors import UsageError
from turbo_lab.course.manifest import MANIFEST_NAME, Manifest, NotebookEntry, load_manifest
from turbo_lab.course.notebook_file import read_notebook, sources_digest
from turbo_lab.course.rundir import explain_disk_errors
from turbo_lab.workshop.nbgrader import CONFIG, CONFIG_NAME, as_assignment
from turbo_lab.workshop.submissions import exercises_in

RELEASE_NAME = "release.json"
FOLDERS = ("turbo_lab", "data", "docs", "requirements", "scripts", ".devcontainer")
FILES = (
    "pyproject.toml", "Makefile", "README.md", "README.zh-CN.md", "CONTRIBUTING.md", "LICENSE",
    "environment.yml",
)  # fmt: skip
SOLUTIONS = Path("turbo_lab") / "course" / "solutions"
_REVEAL = re.compile(r"\breveal\(")


@dataclass(frozen=True)
class Release:
    """What was written: notebook numbers to the exercises in them."""

    folder: Path
    exercises: dict[str, tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        """Plain data, as written to ``release.json``."""
        return {"schema": 1, "exercises": {k: list(v) for k, v in self.exercises.items()}}


def make_release(
    folder: Path,
    *,
    notebooks: Sequence[str] = (),
    nbgrader: bool = False,
    root: Path | None = None,
) -> Release:
    """Write student copies into ``folder``, which must be new or empty.

    Args:
        folder: Target.
        notebooks: Numbers; none means the whole course.
        nbgrader: Give exercise cells nbgrader's metadata, add one locked, graded cell to each, and
            a configuration under which nbgrader leaves the stubs as they are.
        root: The checkout (default: this one).

    Raises UsageError for a folder in use, TurboLabError for a full disk.
    """
    root = root or host.repository_root()
    manifest = load_manifest(root / "notebooks")
    chosen = manifest.select(tuple(notebooks))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is in use. Give a folder that is new or empty.")
    if folder.resolve().is_relative_to(root / "turbo_lab"):
        raise UsageError(f"{folder} lies inside the package. Give a folder outside of it.")
    with explain_disk_errors(folder):
        _copy_tree(root, folder)
        release = Release(folder, _copy_notebooks(manifest, chosen, folder, nbgrader=nbgrader))
        if nbgrader:
            (folder / CONFIG_NAME).write_text(CONFIG, encoding="utf-8")
        text = json.dumps(release.to_json(), indent=1)
        (folder / RELEASE_NAME).write_text(text + "\n", encoding="utf-8")
    return release


def _copy_tree(root: Path, folder: Path) -> None:
    """Everything that the course needs to run, without solutions, caches and links."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FOLDERS:
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, ignore=_left_out(root))
    for name in FILES:
        if (root / name).is_file():
            shutil.copy2(root / name, folder / name)


def _left_out(root: Path) -> Callable[[str, list[str]], set[str]]:
    def ignored(where: str, names: list[str]) -> set[str]:
        solutions = {SOLUTIONS.name} if Path(where) == root / SOLUTIONS.parent else set()
        return solutions | {n for n in names if n == "__pycache__" or n.endswith(".pyc")}

    return ignored


def _copy_notebooks(
    manifest: Manifest, chosen: Sequence[NotebookEntry], folder: Path, *, nbgrader: bool
) -> dict[str, tuple[str, ...]]:
    import nbformat

    target = folder / "notebooks"
    target.mkdir()
    (target / MANIFEST_NAME).write_text(_part_of_manifest(manifest, chosen), encoding="utf-8")
    found = {}
    for entry in chosen:
        notebook = student_copy(read_notebook(manifest.path(entry)))
        found[entry.id] = tuple(i for c in notebook.cells for i in exercises_in(c.source))
        if nbgrader:
            notebook = as_assignment(notebook)
        nbformat.validate(notebook)
        nbformat.write(notebook, target / entry.file)
    return found


def student_copy(notebook: Any) -> Any:
    """The notebook with every output gone that shows a solution or an attempt."""
    for cell in notebook.cells:
        handed_in = cell.cell_type == "code" and exercises_in(cell.source)
        if cell.cell_type == "code" and (handed_in or _REVEAL.search(cell.source)):
            cell.outputs, cell.execution_count = [], None
            tags = [t for t in cell.metadata.get("tags", []) if t != "nbval-check-output"]
            cell.metadata["tags"] = tags
    if "turbo_lab" in notebook.metadata:
        notebook.metadata["turbo_lab"]["sources_sha256"] = sources_digest(notebook)
    return notebook


def _part_of_manifest(manifest: Manifest, chosen: Sequence[NotebookEntry]) -> str:
    """``course.toml`` with the chosen notebooks only, comments kept."""
    text = (manifest.folder / MANIFEST_NAME).read_text(encoding="utf-8")
    head, *blocks = re.split(r"(?m)^(?=\[\[notebook\]\])", text)
    wanted = {entry.id for entry in chosen}
    kept = [b for b in blocks if (m := re.search(r'(?m)^id = "(\d\d)"', b)) and m[1] in wanted]
    return head + "".join(kept)
