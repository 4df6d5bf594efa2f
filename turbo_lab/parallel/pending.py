"""A collective or message that was started and not waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Pending:
    """A call that was started and not waited for. ``wait`` returns the tensor."""

    def __init__(self, work: Any, tensor: torch.Tensor) -> None:
        self._work, self._tensor = work, tensor

    def wait(self) -> torch.Tensor:
        """Wait until the tensor may be used (a sent one: changed) again."""
        if self._work is not None:
            self._work.wait()
        return self._tensor
