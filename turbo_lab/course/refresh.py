"""``turbo-lab course refresh``: execute in replay mode, normalise, write only what changed.

The committed notebooks come from here, so their outputs do not depend on who ran them.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.config import EFFORT_VARIABLE, MODE_VARIABLE
from turbo_lab.core.errors import TurboLabError
from turbo_lab.course import outcome
from turbo_lab.course.kernel import catch_interrupts, execute
from turbo_lab.course.manifest import Manifest
from turbo_lab.course.notebook_file import STAMP, read_notebook, sources_digest
from turbo_lab.course.pictures import smaller_output
from turbo_lab.course.rundir import CellError
from turbo_lab.records.store import write_text_atomically

RUN_DIR_VARIABLE = "TURBO_LAB_RUN_DIR"
KEPT_CELL_METADATA = ("tags", "jupyter", "slideshow")
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


@dataclass(frozen=True)
class Refreshed:
    """What became of one notebook: ``unchanged``, ``changed`` or ``failed`` (with its error)."""

    notebook: str
    status: str
    error: CellError | None = None


def refresh_course(
    manifest: Manifest, *, wanted: Sequence[str] = (), check: bool = False
) -> Iterator[Refreshed]:
    """Refresh the chosen notebooks one by one; with ``check`` nothing is written.

    With ``check``, pictures may differ in their bytes: other font libraries draw the same plot
    with other pixels. Raises KeyboardInterrupt when a stop was asked for.
    """
    for entry in manifest.select(wanted):
        yield refresh_notebook(manifest.path(entry), check=check)


def refresh_notebook(path: Path, *, check: bool = False) -> Refreshed:
    """Execute one notebook in replay mode, normalise it and write it where it changed.

    A failing notebook is left as it was. Raises ConfigError when the file is no notebook.
    """
    import nbformat

    before = read_notebook(path)
    with tempfile.TemporaryDirectory(prefix="turbo-lab-refresh-") as folder:
        executed = Path(folder) / path.name
        status, error = _execute(path, executed)
        if status == "interrupted":
            raise KeyboardInterrupt
        if status == "failed":
            return Refreshed(path.name, "failed", error)
        after = read_notebook(executed)
    normalise(after)
    text = nbformat.writes(after)
    if check:
        same = _without_pictures(before) == _without_pictures(after)
        return Refreshed(path.name, "unchanged" if same else "changed")
    if path.read_text(encoding="utf-8") == text + "\n":
        return Refreshed(path.name, "unchanged")
    write_text_atomically(text + "\n", path)
    return Refreshed(path.name, "changed")


def _execute(path: Path, output: Path) -> tuple[str, CellError | None]:
    """Run with the notebook's own parameters; only the environment says replay."""
    environment = {k: v for k, v in os.environ.items() if k != RUN_DIR_VARIABLE}
    environment |= {MODE_VARIABLE: "replay", EFFORT_VARIABLE: "quick", "PYTHONHASHSEED": "0"}
    with catch_interrupts() as interrupt:
        return outcome.observe(
            lambda: execute(
                path,
                output=output,
                parameters={},
                environment=environment,
                interrupt=interrupt,
            ),
            interrupt=interrupt,
        )


def normalise(notebook: Any) -> None:
    """Remove, in place, all that depends on time, machine or tool.

    Metadata shrinks to the kernelspec, the language and our stamp; cells keep their tags; missing
    or double cell ids are replaced by ones derived from the cell; adjacent stream outputs are
    joined; paths below the checkout or the home folder become relative; pictures get a palette.
    """
    import nbformat

    stamp = {"mode": "replay", "sources_sha256": sources_digest(notebook)}
    kept = {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}, STAMP: stamp}
    notebook.metadata = nbformat.from_dict(kept)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    seen: set[str] = set()
    for cell in notebook.cells:
        kept = {k: v for k, v in cell.metadata.items() if k in KEPT_CELL_METADATA}
        cell.metadata = type(cell.metadata)(kept)
        cell.id = _stable_id(cell, seen)
        seen.add(cell.id)
        if cell.cell_type == "code":
            cell.outputs = _joined_streams(cell.outputs)
            for output in cell.outputs:
                _clean_output(output)


def _stable_id(cell: Any, seen: set[str]) -> str:
    """The cell's own id if it is valid and new, else one from its source."""
    own = cell.get("id", "")
    if own not in seen and re.fullmatch(r"[A-Za-z0-9_-]{1,64}", own):
        return own
    number = 0
    while True:
        text = f"{cell.cell_type}\0{cell.source}\0{number}"
        made = "cell-" + hashlib.sha256(text.encode()).hexdigest()[:8]
        if made not in seen:
            return made
        number += 1


def _joined_streams(outputs: list[Any]) -> list[Any]:
    """Join neighbours of the same stream: where the kernel cuts them depends on timing."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if (
            last is not None
            and output.output_type == last.output_type == "stream"
            and output.name == last.name
        ):
            last.text += output.text
        else:
            joined.append(output)
    return joined


def _clean_output(output: Any) -> None:
    if output.output_type == "stream":
        output.text = relative_paths(output.text)
    for kind, value in output.get("data", {}).items():
        if kind.startswith("text/") and isinstance(value, str):
            output.data[kind] = relative_paths(value)
        elif kind == "image/png":
            output.data[kind] = smaller_output(value)


def relative_paths(text: str) -> str:
    """Replace the checkout's folder by nothing and the home folder by ``~``."""
    root, home = str(host.repository_root()), str(Path.home())
    text = text.replace(root + os.sep, "").replace(root, ".")
    return text if home == os.sep else re.sub(rf"{re.escape(home)}(?=[/\\\s'\"]|$)", "~", text)


def _without_pictures(notebook: Any) -> Any:
    """A comparable copy in which pictures are present but not looked at."""
    import copy

    plain = copy.deepcopy(notebook)
    for cell in plain.cells:
        for output in cell.get("outputs", []):
            for kind in output.get("data", {}):
                if kind.startswith("image/"):
                    output.data[kind] = "picture"
    return plain


def require_success(results: Sequence[Refreshed], *, check: bool) -> None:
    """Raise TurboLabError naming the notebooks that failed or, with ``check``, would change."""
    failed = [r for r in results if r.status == "failed"]
    if failed:
        lines = [f"{r.notebook}: {r.error.name}: {r.error.message}" for r in failed if r.error]
        raise TurboLabError("refresh failed: " + "; ".join(lines))
    stale = [r.notebook for r in results if r.status == "changed"]
    if check and stale:
        raise TurboLabError(
            f"not up to date: {', '.join(stale)}. Run: turbo-lab course refresh, and commit."
        )
