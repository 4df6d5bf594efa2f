"""Executing one notebook with papermill: progress, Ctrl-C, and no kernel left behind.

Ctrl-C (and SIGTERM) is passed to the kernel as an interrupt, so a cell's own ``finally`` blocks
run and servers stop. A kernel that has not come to rest after ``GRACE_S`` seconds, or at the second
Ctrl-C, is killed with its process group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

GRACE_S = 15.0


@dataclass
class Interrupt:
    """State of one run's Ctrl-C handling: the live kernel, and whether a stop was asked for."""

    asked: bool = False
    kernel: Any = None
    timer: threading.Timer | None = None
    grace_s: float = GRACE_S
    previous: dict[int, Any] = field(default_factory=dict)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Signal handler: interrupt the kernel first, kill it when asked again."""
        if self.asked:
            self.signal_kernel("SIGKILL")
            raise KeyboardInterrupt
        self.asked = True
        self.signal_kernel("SIGINT")
        self.timer = threading.Timer(self.grace_s, self.signal_kernel, ["SIGKILL"])
        self.timer.daemon = True
        self.timer.start()

    def signal_kernel(self, name: str) -> None:
        """Send a signal to the kernel's process group, if a kernel lives."""
        provisioner = getattr(self.kernel, "provisioner", None)
        process = getattr(provisioner, "process", None)
        if process is None or process.poll() is not None:
            return
        number = getattr(signal, name, signal.SIGTERM)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if getattr(provisioner, "pgid", None) and hasattr(os, "killpg"):
                os.killpg(provisioner.pgid, number)
            else:
                process.send_signal(number)

    def stop_if_asked(self) -> None:
        """Raise KeyboardInterrupt once a stop was asked for."""
        if self.asked:
            raise KeyboardInterrupt


@contextlib.contextmanager
def catch_interrupts(grace_s: float = GRACE_S) -> Iterator[Interrupt]:
    """Route SIGINT and SIGTERM to the kernel for the length of a run.

    Outside the main thread handlers cannot be set; the run then behaves as papermill does.
    """
    state = Interrupt(grace_s=grace_s)
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            state.previous[number] = signal.signal(number, state.handle)
    try:
        yield state
    finally:
        if state.timer:
            state.timer.cancel()
        for number, handler in state.previous.items():
            signal.signal(number, handler)


def execute(
    source: Path,
    *,
    output: Path,
    parameters: Mapping[str, Any],
    environment: Mapping[str, str],
    interrupt: Interrupt,
    on_cell: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Execute ``source`` into ``output``, saved after every cell.

    Args:
        source: Notebook to execute; it is not changed.
        output: Where the executed notebook goes, also when a cell fails.
        parameters: Values for the parameters cell, already checked.
        environment: The kernel's environment variables.
        interrupt: From ``catch_interrupts``.
        on_cell: Called with (cells done, cells in all).

    Raises:
        papermill.PapermillExecutionError: A cell failed.
        KeyboardInterrupt: A stop was asked for.
    """
    import papermill

    from turbo_lab.course.papermill_engine import ENGINE_NAME, register

    register()
    with _quiet_warnings():
        papermill.execute_notebook(
            str(source),
            str(output),
            parameters=dict(parameters),
            engine_name=ENGINE_NAME,
            progress_bar=False,
            cwd=str(source.parent),
            autosave_cell_every=10,
            environment=dict(environment),
            interrupt=interrupt,
            on_cell=on_cell,
        )


@contextlib.contextmanager
def _quiet_warnings() -> Iterator[None]:
    """Hide traitlets' and tornado's start-up chatter, which says nothing about the notebook."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
