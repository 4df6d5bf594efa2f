"""What one notebook's execution came to: a status, the first error, the predictions met."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from turbo_lab.core.errors import RecordError
from turbo_lab.course.kernel import Interrupt
from turbo_lab.course.rundir import CellError
from turbo_lab.records import store
from turbo_lab.records.schema import Record

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def observe(work: Callable[[], None], *, interrupt: Interrupt) -> tuple[str, CellError | None]:
    """Run ``work`` and say how it ended: (``passed``, None), (``failed``, error), ...

    Errors of the disk are passed on; they concern the whole run.
    """
    from papermill.exceptions import PapermillExecutionError

    try:
        work()
    except KeyboardInterrupt:
        return "interrupted", None
    except PapermillExecutionError as error:
        if interrupt.asked:
            return "interrupted", None
        return "failed", _cell_error(error)
    except OSError:
        raise
    except Exception as error:  # papermill and nbclient raise many kinds: a dead kernel, no kernel
        if interrupt.asked:
            return "interrupted", None
        return "failed", _other_error(error)
    return ("interrupted", None) if interrupt.asked else ("passed", None)


def _cell_error(error: object) -> CellError:
    return CellError(
        name=error.ename,
        message=ANSI.sub("", error.evalue),
        cell=error.exec_count,
        source=error.source,
    )


def _other_error(error: Exception) -> CellError:
    name = type(error).__name__
    message = ANSI.sub("", str(error)).strip()
    if name == "DeadKernelError" or "Kernel died" in message:
        message += " (The kernel process ended by itself: often the machine ran out of memory.)"
    return CellError(name=name, message=message)


def notebook_record(records: Path, notebook_id: str) -> Record | None:
    """The record that notebook ``notebook_id`` wrote in this run; None without a valid one."""
    try:
        return store.load(records / f"nb{notebook_id}.json")
    except RecordError:
        return None


def count_predictions(records: Path, notebook_id: str) -> tuple[int | None, int | None]:
    """(met, total) as the notebook's record says; (None, None) when it wrote no valid record."""
    record = notebook_record(records, notebook_id)
    return (record.predictions_met, record.predictions_total) if record else (None, None)


def relative(path: Path | None, folder: Path) -> str | None:
    """``path`` as the summary writes it: relative to the run, None when there is no such file."""
    if path is None or not path.exists():
        return None
    return path.relative_to(folder).as_posix()
