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
ENGINE_NAME = "turbo-lab"


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

    _register_engine()
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


def _register_engine() -> None:
    """Tell papermill about our engine; doing it twice is harmless."""
    from papermill.clientwrap import PapermillNotebookClient
    from papermill.engines import NBClientEngine, papermill_engines

    class Client(PapermillNotebookClient):
        """Passes on the environment and shows the running kernel to the signal handler."""

        def __init__(self, manager: Any, *, interrupt: Interrupt, environment: Any, **rest: Any):
            super().__init__(manager, **rest)
            self._interrupt, self._environment = interrupt, environment

        def start_new_kernel_client(self, **rest: Any) -> Any:
            self._interrupt.kernel = self.km
            return super().start_new_kernel_client(**rest)

        def execute(self, **rest: Any) -> Any:
            try:
                return super().execute(env=self._environment, **rest)
            finally:
                self._interrupt.kernel = None

    class TurboLabEngine(NBClientEngine):
        """papermill's own engine plus two hooks around every cell."""

        @classmethod
        def execute_managed_notebook(cls, manager: Any, kernel_name: str, **rest: Any) -> Any:
            """Execute the cells, report each one, stop before the next when asked."""
            on_cell, interrupt = rest.pop("on_cell"), rest["interrupt"]
            start, complete = manager.cell_start, manager.cell_complete
            total = len(manager.nb.cells)

            def cell_start(cell: Any, cell_index: int | None = None, **more: Any) -> None:
                interrupt.stop_if_asked()
                start(cell, cell_index, **more)

            def cell_complete(cell: Any, cell_index: int | None = None, **more: Any) -> None:
                if cell.metadata.papermill.get("status") == manager.PENDING:
                    return  # stopped before this cell began
                complete(cell, cell_index, **more)
                on_cell((cell_index or 0) + 1, total)

            manager.cell_start, manager.cell_complete = cell_start, cell_complete
            client = Client(
                manager,
                kernel_name=kernel_name,
                startup_timeout=rest.get("start_timeout", 60),
                timeout=None,
                extra_arguments=["--IPKernelApp.log_level=40"],
                interrupt=interrupt,
                environment=rest["environment"],
            )
            return client.execute()

    papermill_engines.register(ENGINE_NAME, TurboLabEngine)
