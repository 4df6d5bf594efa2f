"""The context of what has a ``close()``."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Self


class Closing(abc.ABC):
    """Usable as a context that ends with ``close()``, whatever happened in it."""

    @abc.abstractmethod
    def close(self) -> None:
        """End what this holds; safe to call twice."""

    def __enter__(self) -> Self:
        """The object itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()
