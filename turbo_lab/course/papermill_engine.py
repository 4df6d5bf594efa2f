"""papermill's own engine with hooks around every cell. Imports papermill: load it only to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines

from turbo_lab.course.kernel import Interrupt

ENGINE_NAME = "turbo-lab"


class Client(PapermillNotebookClient):
    """Passes on the environment and shows the running kernel to the signal handler."""

    def __init__(
        self, manager: Any, *, interrupt: Interrupt, environment: Mapping[str, str], **rest: Any
    ) -> None:
        super().__init__(manager, **rest)
        self._interrupt, self._environment = interrupt, environment

    def start_new_kernel_client(self, **rest: Any) -> Any:
        """Called once the kernel's process exists."""
        self._interrupt.kernel = self.km
        return super().start_new_kernel_client(**rest)

    def execute(self, **rest: Any) -> Any:
        """Execute all cells in a kernel with our environment."""
        try:
            return super().execute(env=dict(self._environment), **rest)
        finally:
            self._interrupt.kernel = None


class TurboLabEngine(NBClientEngine):
    """Reports every finished cell, and stops before the next one when asked to."""

    @classmethod
    def execute_managed_notebook(cls, manager: Any, kernel_name: str, **rest: Any) -> Any:
        """Execute the cells of ``manager.nb``; ``rest`` holds on_cell, interrupt, environment."""
        _add_hooks(manager, on_cell=rest["on_cell"], interrupt=rest["interrupt"])
        client = Client(
            manager,
            kernel_name=kernel_name,
            startup_timeout=rest.get("start_timeout", 60),
            timeout=None,
            extra_arguments=["--IPKernelApp.log_level=40"],
            interrupt=rest["interrupt"],
            environment=rest["environment"],
        )
        return client.execute()


def _add_hooks(manager: Any, *, on_cell: Any, interrupt: Interrupt) -> None:
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


def register() -> None:
    """Tell papermill about this engine; doing it twice is harmless."""
    papermill_engines.register(ENGINE_NAME, TurboLabEngine)
