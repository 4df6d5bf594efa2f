"""Showing a run: a bar per notebook in a terminal, one plain line per step elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from turbo_lab.course.rundir import NotebookResult, RunSummary

if TYPE_CHECKING:
    from rich.console import Console

COLOURS = {"passed": "green", "failed": "red", "interrupted": "yellow"}


class Progress(Protocol):
    """What the runner tells while it works."""

    def begin(self, titles: Sequence[str]) -> None:
        """The run starts with these notebooks."""

    def cell(self, index: int, done: int, total: int) -> None:
        """Notebook ``index`` has executed ``done`` of ``total`` cells."""

    def end_notebook(self, index: int, result: NotebookResult) -> None:
        """Notebook ``index`` is finished."""

    def close(self) -> None:
        """The run is over."""


class Silent:
    """Shows nothing (library use, tests)."""

    def begin(self, titles: Sequence[str]) -> None:
        """Shows nothing."""

    def cell(self, index: int, done: int, total: int) -> None:
        """Shows nothing."""

    def end_notebook(self, index: int, result: NotebookResult) -> None:
        """Shows nothing."""

    def close(self) -> None:
        """Shows nothing."""


class Lines(Silent):
    """One line at a notebook's start and end, and one every half minute between (logs, CI)."""

    def __init__(self, console: Console, *, every_s: float = 30.0) -> None:
        self._console, self._every_s = console, every_s
        self._titles: Sequence[str] = ()
        self._started: set[int] = set()
        self._last_s = 0.0

    def begin(self, titles: Sequence[str]) -> None:
        """Remember the titles."""
        self._titles = titles

    def cell(self, index: int, done: int, total: int) -> None:
        """Print at the start and when the last line is old."""
        now = time.monotonic()
        if index in self._started and now - self._last_s < self._every_s:
            return
        self._started.add(index)
        self._last_s = now
        self._print(f"{self._titles[index]}: {done} of {total} cells")

    def end_notebook(self, index: int, result: NotebookResult) -> None:
        """Print the outcome."""
        self._print(f"{self._titles[index]}: {result.status}{_duration(result)}")

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bars(Silent):
    """Rich progress bars, one per notebook."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self._bars = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("cells"),
            TimeElapsedColumn(),
            console=console,
        )
        self._tasks: list = []

    def begin(self, titles: Sequence[str]) -> None:
        """Show all notebooks, waiting."""
        from rich.markup import escape

        self._bars.start()
        self._tasks = [
            self._bars.add_task(escape(title), total=None, start=False) for title in titles
        ]

    def cell(self, index: int, done: int, total: int) -> None:
        """Move the notebook's bar."""
        task = self._tasks[index]
        if done == 0:
            self._bars.start_task(task)
        self._bars.update(task, completed=done, total=total)

    def end_notebook(self, index: int, result: NotebookResult) -> None:
        """Stop the notebook's clock."""
        self._bars.stop_task(self._tasks[index])

    def close(self) -> None:
        """Leave the bars as they are."""
        self._bars.stop()


def choose_progress(console: Console) -> Progress:
    """Bars in a terminal, plain lines elsewhere."""
    return Bars(console) if console.is_terminal else Lines(console)


def _duration(result: NotebookResult) -> str:
    return "" if result.seconds is None else f" after {result.seconds:.1f} s"


def predictions_text(result: NotebookResult) -> str:
    """``2 of 3``, or ``none recorded`` where the notebook stored none."""
    if result.predictions_total is None:
        return "none recorded"
    return f"{result.predictions_met} of {result.predictions_total}"


def print_summary(summary: RunSummary, *, console: Console, report: str) -> None:
    """The table at the end of a run, the failing cell if any, and where the report lies."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"Course, mode {summary.mode}, effort {summary.effort}")
    for name, justify in (
        ("notebook", "left"),
        ("status", "left"),
        ("minutes", "right"),
        ("predictions met", "right"),
    ):
        table.add_column(name, justify=justify)
    for row in summary.notebooks:
        minutes = "" if row.seconds is None else f"{row.seconds / 60:.1f}"
        status = Text(row.status, style=COLOURS.get(row.status, ""))
        shown = predictions_text(row) if row.status == "passed" else ""
        table.add_row(Text(f"{row.id} {row.title}"), status, minutes, shown)
    console.print(table)
    for row in summary.notebooks:
        if row.error:
            _print_error(row, console)
    console.print(f"Report: {report}", markup=False, highlight=False, soft_wrap=True)


def _print_error(row: NotebookResult, console: Console) -> None:
    from rich.text import Text

    error = row.error
    where = "" if error.cell is None else f", cell [{error.cell}]"
    console.print(Text(f"\nNotebook {row.id}{where}: {error.name}: {error.message}", style="red"))
    if error.source:
        console.print(Text("\n".join(f"    {line}" for line in error.source.splitlines()[:12])))
