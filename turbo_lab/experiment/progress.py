"""Showing a run while it goes: a bar in a terminal and in Jupyter, plain lines in a log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console

LINE_EVERY_S = 10.0


class Progress(Protocol):
    """What a run tells while it works."""

    def say(self, text: str) -> None:
        """One line about what happens now."""

    def begin(self, total: int, done: int = 0) -> None:
        """``total`` requests are to be measured, ``done`` are already."""

    def step(self, *, failed: bool) -> None:
        """One more request is finished. Called from the client's loop: must be light."""

    def end(self) -> None:
        """The measurement is over."""


class Silent:
    """Shows nothing."""

    def say(self, text: str) -> None:
        """Shows nothing."""

    def begin(self, total: int, done: int = 0) -> None:
        """Shows nothing."""

    def step(self, *, failed: bool) -> None:
        """Shows nothing."""

    def end(self) -> None:
        """Shows nothing."""


class Lines(Silent):
    """One line now and then."""

    def __init__(self, console: Console, *, every_s: float = LINE_EVERY_S) -> None:
        self._console, self._every_s = console, every_s
        self._total = self._done = self._failed = 0
        self._start_s = self._last_s = 0.0

    def say(self, text: str) -> None:
        """Print it."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def begin(self, total: int, done: int = 0) -> None:
        """Start counting."""
        self._total, self._done, self._failed = total, done, 0
        self._start_s = self._last_s = time.monotonic()

    def step(self, *, failed: bool) -> None:
        """Count; print when the last line is old."""
        self._done += 1
        self._failed += failed
        now = time.monotonic()
        if now - self._last_s >= self._every_s:
            self._last_s = now
            self.say(self._line(now))

    def end(self) -> None:
        """Print the last count."""
        self.say(self._line(time.monotonic()))

    def _line(self, now: float) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        spent_s = now - self._start_s
        return f"{self._done} of {self._total} requests{failed}, {spent_s:.0f} s"


class Bar(Lines):
    """A Rich bar; in Jupyter it is one output that changes in place."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
            console=console, refresh_per_second=2,
        )  # fmt: skip
        self._task = None

    def begin(self, total: int, done: int = 0) -> None:
        """Show the bar."""
        super().begin(total, done)
        self._bar.start()
        self._task = self._bar.add_task("requests", total=total, completed=done)

    def step(self, *, failed: bool) -> None:
        """Move it; it is drawn twice a second."""
        self._done += 1
        self._failed += failed
        text = f"requests, {self._failed} failed" if self._failed else "requests"
        self._bar.update(self._task, advance=1, description=text)

    def end(self) -> None:
        """Leave the bar as it is."""
        self._bar.stop()


def choose_progress(console: Console) -> Progress:
    """A bar in a terminal or Jupyter, plain lines elsewhere."""
    return Bar(console) if console.is_terminal or console.is_jupyter else Lines(console)
